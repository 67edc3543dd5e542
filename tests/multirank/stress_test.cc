// Threads that run small operations, submit named ones, and reduce a set, each kind alone (nobody
// else of the rank could stand in for a ring that is missing) and all at once, with random pauses
// between all calls, so that engines fall asleep and are rung at every moment. A lost wake-up would
// cost a capped sleep, of which RunRankThreads allows none.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "tests/multirank/requests.h"
#include "tests/support/ranks.h"

namespace ronde {
namespace {

using testing::Call;
using testing::RunRankThreads;

constexpr int kTurns = 1000;  // of each thread

// Of one thread; the same seed on every rank would make all ranks pause alike.
class Pauses {
 public:
  Pauses(int rank, int thread) : random_(static_cast<unsigned>(rank * 16 + thread)) {}

  void operator()() {
    const unsigned kind = random_() % 16;
    if (kind == 0) std::this_thread::yield();
    if (kind == 1) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 1500));
    if (kind < 8) {
      for (volatile unsigned i = random_() % 2000; i > 0;) i = i - 1;
    }
  }
  std::minstd_rand& random() { return random_; }

 private:
  std::minstd_rand random_;
};

void ExpectSum(const Runtime& runtime, const Status& status, const Call& call) {
  ASSERT_TRUE(status.ok()) << status.ToString();
  ASSERT_EQ(call.values().front(), static_cast<float>(runtime.size()));
}

// Unnamed operations: inline, too large for that, and not waited for at once.
void Unnamed(Runtime& runtime, Pauses pauses) {
  for (int turn = 0; turn < kTurns; ++turn) {
    Call call = Call::Allreduce("", turn % 5 == 0 ? 20'000 : 1 + turn % 9, 1);
    pauses();
    if (turn % 3 != 0) {
      ExpectSum(runtime, runtime.Run(*call), call);
      continue;
    }
    const Result<Work> work = runtime.Submit(*call);
    ASSERT_TRUE(work.ok()) << work.status().ToString();
    pauses();
    ExpectSum(runtime, runtime.Wait(*work), call);
  }
}

// Two named operations at a time, in an order of this rank's own.
void Named(Runtime& runtime, Pauses pauses) {
  for (int turn = 0; turn < kTurns; ++turn) {
    Call a = Call::Allreduce("a" + std::to_string(turn % 4), 1 + turn % 3, 1);
    Call b = Call::Allreduce("b" + std::to_string(turn % 4), turn % 7 == 0 ? 15'000 : 2, 1);
    const bool a_first = pauses.random()() % 2 == 0;
    const Result<Work> first = runtime.Submit(a_first ? *a : *b);
    pauses();
    const Result<Work> second = runtime.Submit(a_first ? *b : *a);
    pauses();
    ASSERT_TRUE(first.ok() && second.ok());
    ExpectSum(runtime, runtime.Wait(*second), a_first ? b : a);
    ExpectSum(runtime, runtime.Wait(*first), a_first ? a : b);
  }
}

void Rounds(Runtime& runtime, Set* set, Pauses pauses) {
  std::vector<int> order(static_cast<size_t>(set->num_tensors()));
  std::iota(order.begin(), order.end(), 0);
  for (int turn = 0; turn < kTurns; ++turn) {
    std::shuffle(order.begin(), order.end(), pauses.random());
    for (const int t : order) {
      const TensorView slot = set->slot(t);
      std::fill_n(static_cast<float*>(slot.data), slot.count, static_cast<float>(turn));
      if (t % 3 == 0) pauses();
      ASSERT_TRUE(set->Mark(t).ok());
    }
    ASSERT_TRUE(set->Close().ok());
    pauses();
    const Status status = set->Wait();
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (const int t : order) {
      const TensorView slot = set->slot(t);
      ASSERT_EQ(static_cast<float*>(slot.data)[slot.count - 1],
                static_cast<float>(turn * runtime.size()));
    }
  }
}

class StressTest : public ::testing::TestWithParam<Overlap> {};

INSTANTIATE_TEST_SUITE_P(Overlap, StressTest, ::testing::Values(Overlap::kOn, Overlap::kOff),
                         [](const ::testing::TestParamInfo<Overlap>& tested) {
                           return tested.param == Overlap::kOn ? "on" : "off";
                         });

TEST_P(StressTest, NoWakeUpIsLost) {
  const Overlap overlap = GetParam();
  for (const int ranks : {2, 3}) {
    RunRankThreads(
        ranks,
        [](Runtime& runtime) {
          SetSpec spec;
          spec.name = "stressed";
          spec.op = ReduceOp::kSum;
          for (int t = 0; t < 6; ++t) {
            spec.tensors.push_back({"t" + std::to_string(t),
                                    Shape::Of(std::vector<int64_t>{2000 + 500 * t}),
                                    DType::kFloat32});
          }
          const Result<std::unique_ptr<Set>> set = runtime.DeclareSet(spec);
          ASSERT_TRUE(set.ok()) << set.status().ToString();
          const int rank = runtime.rank();
          Unnamed(runtime, Pauses(rank, 0));
          Named(runtime, Pauses(rank, 1));
          Rounds(runtime, set->get(), Pauses(rank, 2));
          std::thread unnamed([&] { Unnamed(runtime, Pauses(rank, 3)); });
          std::thread named([&] { Named(runtime, Pauses(rank, 4)); });
          Rounds(runtime, set->get(), Pauses(rank, 5));
          unnamed.join();
          named.join();
          // Small budgets, or nobody would have slept.
          EXPECT_GT(runtime.stats().rings, 0);
        },
        [overlap](Config& config) {
          config.overlap = overlap;
          config.bucket_bytes = 8192;
          config.spin_us = 5;
          config.yield_us = 5;
        });
  }
}

}  // namespace
}  // namespace ronde
