// Joining a job and leaving it: who is missing, who does not belong, what is left behind.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/runtime/group_runtime.h"
#include "tests/multirank/requests.h"
#include "tests/support/ranks.h"

namespace ronde {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using testing::Backends;
using ::testing::HasSubstr;
using testing::RankConfig;
using testing::RunRankThreads;
using testing::TempDir;
using testing::TryAllreduce;

// Starts all these members at once; returns what each one gets.
std::vector<Status> Start(const std::vector<Config>& members) {
  std::vector<Status> statuses(members.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < members.size(); ++i) {
    threads.emplace_back([&, i] {
      Result<std::unique_ptr<Runtime>> runtime = CreateGroupRuntime(members[i], Backends());
      statuses[i] = runtime.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

std::vector<Config> Members(int size, const TempDir& dir) {
  std::vector<Config> members;
  for (int r = 0; r < size; ++r) members.push_back(RankConfig(r, size, dir));
  return members;
}

TEST(StartTest, MissingRanksAreNamed) {
  const TempDir dir;
  std::vector<Config> members = Members(4, dir);
  for (Config& config : members) config.start_timeout_ms = 200;
  members.erase(members.begin() + 2);
  for (const Status& status : Start(members)) {
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_THAT(status.ToString(), AllOf(HasSubstr("rank 2 of 4"), HasSubstr("0.2 s")));
  }
}

TEST(StartTest, AMissingRankZeroIsNamed) {
  const TempDir dir;
  Config config = RankConfig(1, 2, dir);
  config.start_timeout_ms = 1;
  const std::vector<Status> statuses = Start({config});
  EXPECT_EQ(statuses[0].code(), Code::kTimeout);
  EXPECT_THAT(statuses[0].ToString(), HasSubstr("rank 0"));
}

TEST(StartTest, AnInterruptEndsIt) {
  const TempDir dir;
  for (const int rank : {0, 1}) {
    const auto runtime =
        CreateGroupRuntime(RankConfig(rank, 2, dir), Backends(), {-1, [] { return false; }});
    EXPECT_EQ(runtime.status().code(), Code::kAborted);
  }
}

// All ranks get the reason, the odd one too.
void ExpectRefused(const std::function<void(Config&)>& change, const std::string& text) {
  const TempDir dir;
  std::vector<Config> members = Members(2, dir);
  change(members[1]);
  for (Config& config : members) config.start_timeout_ms = 5000;
  for (const Status& status : Start(members)) {
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_THAT(status.ToString(), HasSubstr(text));
  }
}

TEST(StartTest, RanksOfAnotherKindAreRefused) {
  ExpectRefused([](Config& config) { config.job = "other"; }, "job 'other'");
  ExpectRefused([](Config& config) { config.size = config.local_size = 3; }, "RONDE_SIZE=3");
  ExpectRefused([](Config& config) { config.rules = "allreduce:0-=shm/cached"; }, "RONDE_RULES");
  ExpectRefused([](Config& config) { config.staging_max_bytes = 1 << 20; }, "RONDE_STAGING_MAX");
}

TEST(StartTest, TwoProcessesOfTheSameRank) {
  const TempDir dir;
  std::vector<Config> members = Members(3, dir);
  members[2].rank = members[2].local_rank = 1;
  for (Config& config : members) config.start_timeout_ms = 3000;
  const std::vector<Status> statuses = Start(members);
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_THAT(status.ToString(), HasSubstr("two processes call themselves rank 1"));
  }
}

TEST(StartTest, BadRulesAreRefusedAtOnce) {
  const TempDir dir;
  Config config = RankConfig(0, 2, dir);
  config.rules = "allreduce:0-=shm/teleport";
  const std::vector<Status> statuses = Start({config});
  EXPECT_EQ(statuses[0].code(), Code::kInvalidArgument);
  EXPECT_THAT(statuses[0].ToString(), AllOf(HasSubstr("RONDE_RULES"), HasSubstr("teleport")));
}

// ---- what is left behind ----

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

size_t RondeMappings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("ronde") < line.npos;
  return count;
}

size_t RondeSharedFiles() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    count += entry.path().filename().string().find("ronde") != std::string::npos;
  }
  return count;
}

// Everything that a job may open: a new name, a set with memory, a large operation.
void UseEverything(Runtime& runtime) {
  const std::filesystem::path socket = runtime.config().rendezvous;
  EXPECT_TRUE(TryAllreduce(runtime, "x").ok());
  EXPECT_TRUE(std::filesystem::is_empty(socket.parent_path())) << "the socket is still there";
  SetSpec spec;
  spec.name = "set";
  spec.tensors.push_back({"t", Shape::Of(std::vector<int64_t>{1000}), DType::kFloat32});
  Result<std::unique_ptr<Set>> set = runtime.DeclareSet(spec);
  ASSERT_TRUE(set.ok()) << set.status().ToString();
  EXPECT_TRUE((*set)->Mark(0).ok());
  EXPECT_TRUE((*set)->Close().ok());
  EXPECT_TRUE((*set)->Wait().ok());
}

TEST(LeaveTest, NothingIsLeftAfterFiftyJobs) {
  RunRankThreads(3, UseEverything);
  const size_t descriptors = OpenDescriptors();
  const size_t shared_files = RondeSharedFiles();
  // test programs live in a folder that may be called so, hence a difference
  const size_t mappings = RondeMappings();
  for (int i = 0; i < 50; ++i) RunRankThreads(3, UseEverything);
  EXPECT_EQ(OpenDescriptors(), descriptors);
  EXPECT_EQ(RondeMappings(), mappings);
  EXPECT_LE(RondeSharedFiles(), shared_files);
}

TEST(LeaveTest, NothingIsLeftAfterFailedStarts) {
  const auto fail = [] {
    ExpectRefused([](Config& config) { config.job = "other"; }, "job 'other'");
  };
  fail();
  const size_t descriptors = OpenDescriptors();
  for (int i = 0; i < 10; ++i) fail();
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

// The same place and the same ranks, each one coming back as soon as it has left.
TEST(LeaveTest, QuickReturn) {
  const TempDir dir;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      for (int i = 0; i < 50; ++i) {
        Result<std::unique_ptr<Runtime>> runtime =
            CreateGroupRuntime(RankConfig(rank, 3, dir), Backends());
        ASSERT_TRUE(runtime.ok()) << runtime.status().ToString();
        // A barrier at the end, so that nobody leaves while another one still starts.
        const Status status = TryAllreduce(**runtime);
        ASSERT_TRUE(status.ok()) << status.ToString();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace ronde
