// Works: names, callbacks, waiting, threads, shutdown.
#include <gmock/gmock.h>

#include <atomic>
#include <barrier>
#include <cmath>
#include <latch>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/multirank/requests.h"
#include "tests/support/ranks.h"

namespace ronde {
namespace {

using ::testing::AllOf;
using testing::Call;
using ::testing::HasSubstr;
using testing::RunRankThreads;
using testing::TryAllreduce;

std::string Numbered(const char* prefix, int i) {
  return prefix + std::to_string(i);
}

TEST(WorksTest, ANameIsInFlightOnce) {
  RunRankThreads(2, [](Runtime& runtime) {
    std::unique_ptr<Call> first = std::make_unique<Call>(OpKind::kAllreduce, "twice");
    first->Add({4});
    Work work;
    // The other rank joins late, so that the first one stays in flight.
    if (runtime.rank() == 0) {
      work = *runtime.Submit(**first);
      Call second = Call::Allreduce("twice");
      const Result<Work> refused = runtime.Submit(*second);
      ASSERT_EQ(refused.status().code(), Code::kInvalidArgument);
      EXPECT_THAT(refused.status().ToString(), AllOf(HasSubstr("'twice'"), HasSubstr("in flight")));
      EXPECT_EQ(runtime.Run(*second).code(), Code::kInvalidArgument);
      EXPECT_TRUE(TryAllreduce(runtime).ok());
    } else {
      EXPECT_TRUE(TryAllreduce(runtime).ok());
      work = *runtime.Submit(**first);
    }
    EXPECT_TRUE(runtime.Wait(work).ok());
    EXPECT_TRUE(TryAllreduce(runtime, "twice").ok());
  });
}

TEST(WorksTest, NamesAreAtMost1023Bytes) {
  RunRankThreads(2, [](Runtime& runtime) {
    const std::string longest(1023, 'n');
    EXPECT_TRUE(TryAllreduce(runtime, longest).ok());
    EXPECT_TRUE(TryAllreduce(runtime, longest).ok());
    Call call = Call::Allreduce(longest + "n");
    const Status status = runtime.Submit(*call).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.ToString(), AllOf(HasSubstr("1024"), HasSubstr("1023")));
    EXPECT_TRUE(TryAllreduce(runtime).ok());
  });
}

TEST(WorksTest, BadArgumentsOnAllRanksFailTheWork) {
  RunRankThreads(2, [](Runtime& runtime) {
    for (const std::string name : {"", "bad"}) {
      Call scale = Call::Allreduce(name);
      scale->postscale = std::nan("");
      EXPECT_EQ(runtime.Run(*scale).code(), Code::kInvalidArgument);
      const Tensor nothing{TensorView{nullptr, 3, DType::kFloat32, {}},
                           Shape::Of(std::vector<int64_t>{3})};
      Request request;
      request.name = name;
      request.inputs = {&nothing, 1};
      const Status null = runtime.Run(request);
      EXPECT_EQ(null.code(), Code::kInvalidArgument);
      EXPECT_THAT(null.ToString(), HasSubstr("null"));
      Call root(OpKind::kBroadcast, name);
      root.Add({3});
      root->root = 2;
      EXPECT_THAT(runtime.Run(*root).ToString(),
                  AllOf(HasSubstr("root is 2"), HasSubstr("0 to 1")));
      EXPECT_TRUE(TryAllreduce(runtime, name).ok());
    }
    EXPECT_EQ(runtime.Wait(Work()).code(), Code::kInvalidArgument);
  });
}

// The names beyond the first 4096 get an id for one use each.
TEST(WorksTest, MoreNamesThanTheCacheHolds) {
  RunRankThreads(2, [](Runtime& runtime) {
    constexpr int kNames = 5000;
    constexpr int kInFlight = 300;
    for (int begin = 0; begin < kNames; begin += kInFlight) {
      std::vector<std::unique_ptr<Call>> calls;
      std::vector<Work> works;
      for (int i = 0; i < kInFlight; ++i) {
        const int next = runtime.rank() == 0 ? i : kInFlight - 1 - i;
        calls.push_back(std::make_unique<Call>(OpKind::kAllreduce, Numbered("n", begin + next)));
        calls.back()->Add({2}, DType::kFloat32, 1);
        Result<Work> work = runtime.Submit(**calls.back());
        ASSERT_TRUE(work.ok()) << work.status().ToString();
        works.push_back(*work);
      }
      for (size_t i = 0; i < works.size(); ++i) {
        ASSERT_TRUE(runtime.Wait(works[i]).ok()) << works[i].status().ToString();
        ASSERT_EQ(calls[i]->value(), 2);
      }
    }
    // Names of both kinds once more.
    for (int i = kNames - 1; i >= 0; i -= 97) {
      ASSERT_TRUE(TryAllreduce(runtime, Numbered("n", i)).ok());
      ASSERT_TRUE(TryAllreduce(runtime, Numbered("n", kNames - 1)).ok());
    }
  });
}

TEST(WorksTest, CallbacksRunExactlyOnce) {
  RunRankThreads(3, [](Runtime& runtime) {
    constexpr int kWorks = 100;
    std::vector<std::atomic<int>> calls_seen(kWorks);
    std::latch all(kWorks);
    std::vector<std::unique_ptr<Call>> calls;
    for (int i = 0; i < kWorks; ++i) {
      calls.push_back(
          std::make_unique<Call>(OpKind::kAllreduce, i % 3 == 0 ? "" : Numbered("cb", i)));
      calls.back()->Add({10}, DType::kFloat32, 1);
      const Call* const call = calls.back().get();
      const Result<Work> work = runtime.Submit(**calls.back(), [&, i, call](const Status& status) {
        EXPECT_TRUE(status.ok()) << status.ToString();
        EXPECT_EQ(call->value(), 3);
        ++calls_seen[static_cast<size_t>(i)];
        all.count_down();
      });
      ASSERT_TRUE(work.ok());
    }
    all.wait();  // nobody waits through the Runtime: the progress thread does it all
    EXPECT_TRUE(TryAllreduce(runtime).ok());
    for (const auto& seen : calls_seen) EXPECT_EQ(seen, 1);
  });
}

// Wherever a callback runs, it may go on with the next operation and wait for it.
TEST(WorksTest, ACallbackMaySubmitAndWait) {
  RunRankThreads(2, [](Runtime& runtime) {
    for (int round = 0; round < 20; ++round) {
      std::latch done(1);
      Call first = Call::Allreduce("outer");
      const Result<Work> work = runtime.Submit(*first, [&](const Status& status) {
        EXPECT_TRUE(status.ok());
        EXPECT_TRUE(TryAllreduce(runtime, "inner").ok());
        Call third(OpKind::kAllgather, "inner too");
        third.Add({100'000});
        const Result<Work> more = runtime.Submit(*third);
        ASSERT_TRUE(more.ok());
        EXPECT_TRUE(runtime.Wait(*more).ok());
        done.count_down();
      });
      ASSERT_TRUE(work.ok());
      if (round % 2 == 0) {
        EXPECT_TRUE(runtime.Wait(*work).ok());
      }
      done.wait();
    }
  });
}

TEST(WorksTest, ManyThreadsSubmitAndWait) {
  RunRankThreads(3, [](Runtime& runtime) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&runtime, t] {
        for (int i = 0; i < 50; ++i) {
          const Status status = TryAllreduce(runtime, Numbered("thread", 100 * t + i % 7));
          ASSERT_TRUE(status.ok()) << status.ToString();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

// Unnamed operations that are all alike may come from several threads: whichever is first.
TEST(WorksTest, ThreadsOfUnnamedOperations) {
  RunRankThreads(2, [](Runtime& runtime) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&runtime, t] {
        for (int i = 0; i < 300; ++i) {
          Call call = Call::Allreduce("");
          const Status status = t == 0 ? runtime.Wait(*runtime.Submit(*call)) : runtime.Run(*call);
          ASSERT_TRUE(status.ok()) << status.ToString();
          ASSERT_EQ(call.value(), 2);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

// Statistics, and threads that do nothing but ask for them, must not swallow anybody's turn.
TEST(WorksTest, SubmitWhileOthersLook) {
  RunRankThreads(2, [](Runtime& runtime) {
    std::atomic<bool> stop{false};
    std::thread looks([&] {
      while (!stop) (void)runtime.stats();
    });
    for (int i = 0; i < 500; ++i) {
      std::latch done(1);
      Call call = Call::Allreduce("looked at");
      const Result<Work> work = runtime.Submit(*call, [&](const Status&) { done.count_down(); });
      ASSERT_TRUE(work.ok());
      done.wait();
    }
    stop = true;
    looks.join();
  });
}

TEST(WorksTest, PollAloneGetsItDone) {
  RunRankThreads(3, [](Runtime& runtime) {
    for (const int64_t count : {int64_t{1}, int64_t{100'000}}) {
      for (const char* name : {"", "polled"}) {
        Call call = Call::Allreduce(name, count);
        const Result<Work> work = runtime.Submit(*call);
        ASSERT_TRUE(work.ok());
        while (!runtime.Poll(*work)) std::this_thread::yield();
        EXPECT_TRUE(work->status().ok());
        EXPECT_EQ(call.value(), 3);
      }
    }
  });
}

TEST(WorksTest, AWaitThatTimesOutLeavesTheWorkInFlight) {
  RunRankThreads(2, [](Runtime& runtime) {
    Call call = Call::Allreduce("late");
    if (runtime.rank() == 0) {
      const Result<Work> work = runtime.Submit(*call);
      ASSERT_TRUE(work.ok());
      for (const int64_t timeout_ms : {0, 1, 30}) {
        const Status status = runtime.Wait(*work, {timeout_ms, nullptr});
        EXPECT_EQ(status.code(), Code::kTimeout);
        EXPECT_THAT(status.ToString(), HasSubstr("'late'"));
      }
      int asked = 0;
      const Status interrupted = runtime.Wait(*work, {-1, [&] { return ++asked < 2; }});
      EXPECT_EQ(interrupted.code(), Code::kAborted);
      EXPECT_EQ(asked, 2);
      EXPECT_FALSE(work->done());
      EXPECT_TRUE(TryAllreduce(runtime).ok());
      EXPECT_TRUE(runtime.Wait(*work, {std::numeric_limits<int64_t>::max(), nullptr}).ok());
    } else {
      EXPECT_TRUE(TryAllreduce(runtime).ok());
      EXPECT_TRUE(runtime.Run(*call).ok());
    }
    EXPECT_EQ(call.value(), 2);
    EXPECT_TRUE(runtime.health().ok());
  });
}

// A blocking call whose deadline passes stays in flight too; its memory must live that long.
TEST(WorksTest, AnOperationTimesOutForTheWholeJob) {
  for (const char* name : {"", "lonely"}) {
    RunRankThreads(
        3,
        [&](Runtime& runtime) {
          if (runtime.rank() == 1) {
            while (runtime.health().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
          } else {
            Call call = Call::Allreduce(name);
            const Status status = runtime.Run(*call);
            EXPECT_EQ(status.code(), Code::kTimeout);
            EXPECT_THAT(status.ToString(), HasSubstr("rank 1"));
          }
          EXPECT_EQ(TryAllreduce(runtime).code(), Code::kTimeout);
        },
        [](Config& config) { config.timeout_ms = 300; });
  }
}

TEST(WorksTest, ANewNameThatOneRankNeverUsesTimesOut) {
  for (const int absent : {0, 1, 2}) {
    RunRankThreads(
        3,
        [&](Runtime& runtime) {
          if (runtime.rank() != absent) {
            Call call = Call::Allreduce("new");
            const Status status = runtime.Run(*call);
            EXPECT_EQ(status.code(), Code::kTimeout);
            EXPECT_THAT(status.ToString(),
                        AllOf(HasSubstr("'new'"), HasSubstr(Numbered("rank ", absent))));
          }
          while (runtime.health().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        },
        [](Config& config) { config.timeout_ms = 300; });
  }
}

// Rank `leaver` shuts down while the others wait for it in `call`.
void Leave(int leaver, const std::function<Status(Runtime&)>& call) {
  std::barrier<> all_know(3);
  RunRankThreads(3, [&](Runtime& runtime) {
    EXPECT_TRUE(TryAllreduce(runtime, "known").ok());
    all_know.arrive_and_wait();
    if (runtime.rank() == leaver) {
      runtime.Shutdown();
      EXPECT_EQ(TryAllreduce(runtime).code(), Code::kNotInitialized);
      return;
    }
    const Status status = call(runtime);
    EXPECT_EQ(status.code(), Code::kPeerLost) << status.ToString();
    EXPECT_THAT(status.ToString(),
                AllOf(HasSubstr(Numbered("rank ", leaver)), HasSubstr("shutdown")));
    EXPECT_EQ(TryAllreduce(runtime, "known").code(), Code::kPeerLost);
  });
}

TEST(WorksTest, ShutdownWhileOthersWait) {
  for (const int leaver : {0, 1, 2}) {
    Leave(leaver, [](Runtime& runtime) { return TryAllreduce(runtime); });
    Leave(leaver, [](Runtime& runtime) { return TryAllreduce(runtime, "known"); });
    Leave(leaver, [](Runtime& runtime) { return TryAllreduce(runtime, "new"); });
    Leave(leaver, [](Runtime& runtime) {
      SetSpec spec;
      spec.name = "set";
      spec.tensors.push_back({"t", Shape::Of(std::vector<int64_t>{4}), DType::kFloat32});
      return runtime.DeclareSet(spec).status();
    });
    Leave(leaver, [](Runtime& runtime) {
      Call call = Call::Allreduce("", 1'000'000);
      return runtime.Run(*call);
    });
  }
}

TEST(WorksTest, ShutdownEndsWhatIsInFlight) {
  RunRankThreads(2, [](Runtime& runtime) {
    if (runtime.rank() == 1) return;
    std::atomic<int> callbacks{0};
    Call call = Call::Allreduce("pending");
    Call unnamed = Call::Allreduce("");
    const auto count = [&](const Status& status) {
      EXPECT_EQ(status.code(), Code::kAborted);
      ++callbacks;
    };
    const Result<Work> work = runtime.Submit(*call, count);
    const Result<Work> other = runtime.Submit(*unnamed, count);
    ASSERT_TRUE(work.ok() && other.ok());
    std::thread waits([&] { EXPECT_EQ(runtime.Wait(*other).code(), Code::kAborted); });
    runtime.Shutdown();
    waits.join();
    EXPECT_EQ(callbacks, 2);
    EXPECT_TRUE(work->done());
    EXPECT_EQ(runtime.Wait(*work).code(), Code::kAborted);
    EXPECT_EQ(runtime.Submit(*call).status().code(), Code::kNotInitialized);
    runtime.Shutdown();
  });
}

// The last operation is through on all ranks, one of them just does not know it yet when another
// one leaves: no error.
TEST(WorksTest, LeavingAfterTheLastOperationHarmsNobody) {
  for (int i = 0; i < 30; ++i) {
    RunRankThreads(4, [](Runtime& runtime) {
      Call barrier(OpKind::kBarrier);
      const Status first = runtime.Run(*barrier);
      EXPECT_TRUE(first.ok()) << first.ToString();
      Call last = Call::Allreduce("", 20'000);
      const Status status = runtime.Run(*last);
      EXPECT_TRUE(status.ok()) << status.ToString();
      runtime.Shutdown();
    });
  }
}

TEST(WorksTest, TinyStagingStillServesManyRanks) {
  RunRankThreads(
      8,
      [](Runtime& runtime) {
        Call call = Call::Allreduce("", 30'000);
        const Status status = runtime.Run(*call);
        EXPECT_TRUE(status.ok()) << status.ToString();
        EXPECT_EQ(call.value(), 8);
      },
      [](Config& config) { config.staging_max_bytes = 64 << 10; });
}

}  // namespace
}  // namespace ronde
