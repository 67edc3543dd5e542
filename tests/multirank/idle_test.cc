// A job at rest: nobody rings, nobody wakes up.
#include <gmock/gmock.h>

#include <barrier>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/multirank/requests.h"
#include "tests/support/ranks.h"

namespace ronde {
namespace {

using testing::RunRankThreads;
using testing::TryAllreduce;

// Context switches so far of all threads of this process.
int64_t Switches() {
  int64_t switches = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.find("ctxt_switches") == std::string::npos) continue;
      switches += std::stoll(line.substr(line.find(':') + 1));
    }
  }
  return switches;
}

TEST(IdleTest, NobodyWakesUp) {
  constexpr int kRanks = 4;
  constexpr int kSeconds = 3;
  std::barrier<> together(kRanks);
  int64_t before = 0;
  RunRankThreads(kRanks, [&](Runtime& runtime) {
    SetSpec spec;
    spec.name = "s";
    spec.tensors.push_back({"t", Shape::Of(std::vector<int64_t>{1000}), DType::kFloat32});
    const Result<std::unique_ptr<Set>> set = runtime.DeclareSet(spec);
    ASSERT_TRUE(set.ok());
    ASSERT_TRUE(TryAllreduce(runtime, "a").ok());
    ASSERT_TRUE(TryAllreduce(runtime).ok());
    // Threads that still settle have done so after this.
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    together.arrive_and_wait();
    if (runtime.rank() == 0) before = Switches();
    together.arrive_and_wait();
    const int64_t rings = runtime.stats().rings;
    std::this_thread::sleep_for(std::chrono::seconds(kSeconds));
    EXPECT_EQ(runtime.stats().rings, rings);
    together.arrive_and_wait();
    if (runtime.rank() == 0) {
      // The watch threads look once a second. 20 a second per rank are allowed; preemptions on a
      // busy machine count as well.
      EXPECT_LT(Switches() - before, int64_t{20} * kRanks * kSeconds);
    }
    together.arrive_and_wait();
  });
}

}  // namespace
}  // namespace ronde
