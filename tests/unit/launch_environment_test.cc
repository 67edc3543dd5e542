#include "core/launch/environment.h"

#include <gmock/gmock.h>

namespace ronde::launch {
namespace {

using testing::Contains;
using testing::IsSupersetOf;
using testing::Not;
using testing::StartsWith;

JobIdentity Identity() {
  return {4, "/tmp/r/rendezvous", "0123456789abcdef", 5001};
}

TEST(LaunchEnvironmentTest, TellsARankItsPlaceInBothLanguages) {
  const Environment environment = RankEnvironment({"HOME=/root"}, Identity(), 3, 2, false);
  EXPECT_THAT(environment,
              IsSupersetOf({"HOME=/root", "RONDE_RANK=3", "RONDE_SIZE=4", "RONDE_LOCAL_RANK=3",
                            "RONDE_LOCAL_SIZE=4", "RONDE_RENDEZVOUS=/tmp/r/rendezvous",
                            "RONDE_JOB=0123456789abcdef", "RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=3",
                            "LOCAL_WORLD_SIZE=4", "GROUP_RANK=0", "MASTER_ADDR=127.0.0.1",
                            "MASTER_PORT=5001", "PYTHONUNBUFFERED=1", "OMP_NUM_THREADS=2",
                            "MKL_NUM_THREADS=2", "OPENBLAS_NUM_THREADS=2"}));
}

TEST(LaunchEnvironmentTest, ReplacesWhatAnOuterJobHasSet) {
  const Environment environment =
      RankEnvironment({"RANK=9", "RANKING=keep", "RONDE_JOB=old"}, Identity(), 0, 1, false);
  EXPECT_THAT(environment, Contains("RANK=0").Times(1));
  EXPECT_THAT(environment, Not(Contains("RANK=9")));
  EXPECT_THAT(environment, Contains("RANKING=keep"));
  EXPECT_THAT(environment, Contains(StartsWith("RONDE_JOB=")).Times(1));
}

TEST(LaunchEnvironmentTest, TheUsersThreadsAndBufferingStay) {
  const Environment base = {"OMP_NUM_THREADS=7", "MKL_NUM_THREADS=", "PYTHONUNBUFFERED=x"};
  const Environment environment = RankEnvironment(base, Identity(), 0, 2, false);
  EXPECT_THAT(environment, IsSupersetOf({"OMP_NUM_THREADS=7", "MKL_NUM_THREADS=2",
                                         "OPENBLAS_NUM_THREADS=2", "PYTHONUNBUFFERED=x"}));
  EXPECT_THAT(RankEnvironment(base, Identity(), 0, 2, true), Contains("OMP_NUM_THREADS=2"));
}

TEST(LaunchEnvironmentTest, SaysWhetherThreadsAreOurs) {
  EXPECT_TRUE(LeavesThreadsToUs({}));
  EXPECT_TRUE(LeavesThreadsToUs({"OMP_NUM_THREADS=1"}));
  EXPECT_FALSE(
      LeavesThreadsToUs({"OMP_NUM_THREADS=1", "MKL_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1"}));
}

}  // namespace
}  // namespace ronde::launch
