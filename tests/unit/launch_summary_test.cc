#include "core/launch/summary.h"

#include <csignal>

#include <gmock/gmock.h>

namespace ronde::launch {
namespace {

using testing::ElementsAre;

constexpr int64_t kSecond = 1'000'000'000;

RankEnd Exited(int status, int64_t at_s) {
  return {false, status, false, at_s * kSecond};
}
RankEnd Killed(int signal, int64_t at_s, bool by_launcher = false) {
  return {true, signal, by_launcher, at_s * kSecond};
}

JobEnd FailedJob() {
  JobEnd job;
  job.started_ns = 10 * kSecond;
  job.first_failed = 1;
  job.ranks = {Exited(1, 16), Exited(3, 15), Killed(SIGTERM, 17, true), Exited(0, 12)};
  return job;
}

TEST(LaunchSummaryTest, NamesTheFirstFailingRankItsStderrAndEveryOther) {
  JobEnd job = FailedJob();
  job.last_stderr = {"Traceback", "ValueError: x"};
  EXPECT_THAT(Summarize(job),
              ElementsAre("ronde: rank 1 failed first, 5.0 s after the start: exit status 3",
                          "ronde: last lines of rank 1's stderr:", "  | Traceback",
                          "  | ValueError: x", "ronde: rank 0: exit status 1, 1.0 s later",
                          "ronde: rank 2: ended by ronde run with SIGTERM, 2.0 s later",
                          "ronde: rank 3: exit status 0, 3.0 s earlier"));
  EXPECT_EQ(ExitStatus(job), 3);
}

TEST(LaunchSummaryTest, SignalsHaveNames) {
  EXPECT_EQ(DescribeEnd(Killed(SIGSEGV, 0)), "killed by SIGSEGV (Segmentation fault)");
  EXPECT_EQ(DescribeEnd(Killed(SIGKILL, 0)), "killed by SIGKILL (out of memory? see dmesg)");
  EXPECT_EQ(DescribeEnd(Killed(SIGKILL, 0, true)), "ended by ronde run with SIGKILL");
  EXPECT_EQ(SignalName(63), "signal 63");
}

TEST(LaunchSummaryTest, ExitStatusOfASignalIsThatOfShells) {
  JobEnd job = FailedJob();
  job.ranks[1] = Killed(SIGABRT, 15);
  EXPECT_EQ(ExitStatus(job), 134);
}

TEST(LaunchSummaryTest, AnInterruptedJobSaysSo) {
  JobEnd job;
  job.interrupt_signal = SIGINT;
  job.ranks = {Killed(SIGINT, 2), Exited(0, 3)};
  EXPECT_THAT(Summarize(job), ElementsAre("ronde: ended after SIGINT at 3.0 s",
                                          "ronde: rank 0: killed by SIGINT (Interrupt)",
                                          "ronde: rank 1: exit status 0"));
  EXPECT_EQ(ExitStatus(job), 130);
}

TEST(LaunchSummaryTest, Success) {
  JobEnd job;
  job.ranks = {Exited(0, 1), Exited(0, 2)};
  EXPECT_THAT(Summarize(job), ElementsAre("ronde: 2 ranks ended with exit status 0 after 2.0 s"));
  EXPECT_EQ(ExitStatus(job), 0);
}

}  // namespace
}  // namespace ronde::launch
