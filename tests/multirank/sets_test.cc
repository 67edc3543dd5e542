// Declared sets: presence, rounds, disagreements, memory, life and death.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <latch>
#include <memory>
#include <numeric>
#include <random>
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

using Sets = std::unique_ptr<Set>;

SetSpec Spec(const std::string& name, const std::vector<int64_t>& counts,
             DType dtype = DType::kFloat32, ReduceOp op = ReduceOp::kSum) {
  SetSpec spec;
  spec.name = name;
  spec.op = op;
  for (size_t t = 0; t < counts.size(); ++t) {
    spec.tensors.push_back(
        {"t" + std::to_string(t), Shape::Of(std::vector<int64_t>{counts[t]}), dtype});
  }
  return spec;
}

Sets Declare(Runtime& runtime, const SetSpec& spec) {
  Result<Sets> set = runtime.DeclareSet(spec);
  EXPECT_TRUE(set.ok()) << set.status().ToString();
  return set.ok() ? std::move(*set) : nullptr;
}

void Fill(Set& set, int t, float value) {
  const TensorView slot = set.slot(t);
  auto* data = static_cast<float*>(slot.data);
  std::fill(data, data + slot.count, value);
}

void ExpectAll(const Set& set, int t, float value) {
  const TensorView slot = set.slot(t);
  const auto* data = static_cast<const float*>(slot.data);
  for (int64_t i = 0; i < slot.count; ++i) ASSERT_EQ(data[i], value) << "tensor " << t << " " << i;
}

void MarkAll(Set& set, float value) {
  for (int t = 0; t < set.num_tensors(); ++t) {
    Fill(set, t, value);
    const Status status = set.Mark(t);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
}

// One round in which everybody contributes 1 everywhere.
void GoodRound(Runtime& runtime, Set& set) {
  MarkAll(set, 1);
  ASSERT_TRUE(set.Close().ok());
  const Status status = set.Wait();
  ASSERT_TRUE(status.ok()) << status.ToString();
  for (int t = 0; t < set.num_tensors(); ++t) {
    ExpectAll(set, t, static_cast<float>(runtime.size()));
    if (set.slot(t).count == 0) continue;
    EXPECT_EQ(set.contributors(t), runtime.size());
    EXPECT_TRUE(set.tensor_status(t).ok());
  }
}

// With and without a progress thread that reduces.
class SetTest : public ::testing::TestWithParam<Overlap> {
 public:
  static void Run(int size, const testing::RankFn& fn,
                  const std::function<void(Config&)>& adjust = nullptr) {
    RunRankThreads(size, fn, [&](Config& config) {
      config.overlap = GetParam();
      config.bucket_bytes = 64 << 10;
      if (adjust) adjust(config);
    });
  }
};

// Every combination of what three ranks may do with a tensor, one tensor for each.
TEST_P(SetTest, PresentAbsentPoisoned) {
  Run(3, [](Runtime& runtime) {
    constexpr int kCombinations = 27;
    const Sets set = Declare(runtime, Spec("s", std::vector<int64_t>(kCombinations, 3000)));
    const auto state = [](int t, int rank) {
      return rank == 0 ? t % 3 : rank == 1 ? t / 3 % 3 : t / 9;
    };
    for (int round = 1; round <= 3; ++round) {
      for (int t = 0; t < kCombinations; ++t) {
        Fill(*set, t, static_cast<float>(round * (runtime.rank() + 1)));
        const int mine = state(t, runtime.rank());
        Status status;
        if (mine == 0) status = set->Mark(t);
        if (mine == 2) status = set->Poison(t, "why " + std::to_string(t));
        ASSERT_TRUE(status.ok()) << status.ToString();
      }
      ASSERT_TRUE(set->Close().ok());
      ASSERT_TRUE(set->Wait().ok());
      EXPECT_EQ(set->round(), round);
      for (int t = 0; t < kCombinations; ++t) {
        int present = 0;
        float sum = 0;
        int poisoner = -1;
        for (int r = 0; r < 3; ++r) {
          if (state(t, r) == 0) sum += static_cast<float>(round * (r + 1));
          present += state(t, r) == 0;
          if (state(t, r) == 2 && poisoner < 0) poisoner = r;
        }
        EXPECT_EQ(set->contributors(t), present) << t;
        if (poisoner < 0) {
          EXPECT_TRUE(set->tensor_status(t).ok());
          ExpectAll(*set, t, sum);
        } else {
          EXPECT_EQ(set->tensor_status(t).code(), Code::kMismatch);
          EXPECT_THAT(set->tensor_status(t).ToString(),
                      AllOf(HasSubstr("rank " + std::to_string(poisoner)),
                            HasSubstr("'t" + std::to_string(t) + "'"),
                            HasSubstr("why " + std::to_string(t))));
        }
      }
    }
  });
}

TEST_P(SetTest, MoreReasonsThanThereIsRoomFor) {
  Run(2, [](Runtime& runtime) {
    const Sets set = Declare(runtime, Spec("s", std::vector<int64_t>(20, 8)));
    for (int round = 0; round < 3; ++round) {
      for (int t = 0; t < 20 && runtime.rank() == 1; ++t) {
        ASSERT_TRUE(set->Poison(t, "tensor " + std::to_string(t) + std::string(150, 'y')).ok());
      }
      ASSERT_TRUE(set->Close().ok());
      ASSERT_TRUE(set->Wait().ok());
      EXPECT_THAT(set->tensor_status(2).ToString(), HasSubstr("rank 1: tensor 2yyy"));
      EXPECT_EQ(set->tensor_status(19).code(), Code::kMismatch);
      EXPECT_THAT(set->tensor_status(19).ToString(), HasSubstr("too many reasons"));
    }
  });
}

TEST_P(SetTest, TwoHundredRoundsInRandomOrder) {
  for (const int ranks : {1, 2, 4}) {
    Run(ranks, [](Runtime& runtime) {
      const std::vector<int64_t> counts = {1, 0, 5000, 17, 20'000, 100, 3, 0, 9000};
      const Sets set = Declare(runtime, Spec("s", counts));
      std::mt19937 random(static_cast<unsigned>(runtime.rank()));
      std::vector<int> order(counts.size());
      std::iota(order.begin(), order.end(), 0);
      for (int round = 0; round < 200; ++round) {
        std::shuffle(order.begin(), order.end(), random);
        for (const int t : order) {
          Fill(*set, t, static_cast<float>(t + round));
          ASSERT_TRUE(set->Mark(t).ok());
        }
        ASSERT_TRUE(set->Close().ok());
        if (round % 3 == 0) {
          while (!set->Poll()) std::this_thread::yield();
        }
        const Status status = set->Wait();
        ASSERT_TRUE(status.ok()) << status.ToString();
        for (const int t : order) {
          ExpectAll(*set, t, static_cast<float>(runtime.size() * (t + round)));
        }
      }
      EXPECT_EQ(runtime.stats().rounds, 200);
    });
  }
}

// A rank may be a round ahead of one that has yet to read what was said about the last one.
TEST_P(SetTest, WhoContributedIsKeptUntilItIsRead) {
  std::atomic<bool> first_round_over{false}, second_begun{false};
  Run(2, [&](Runtime& runtime) {
    const Sets set = Declare(runtime, Spec("s", {100, 100}));
    const auto round = [&](bool with_first) {
      for (int t = with_first ? 0 : 1; t < 2; ++t) {
        Fill(*set, t, 1);
        ASSERT_TRUE(set->Mark(t).ok());
      }
      ASSERT_TRUE(set->Close().ok());
    };
    round(runtime.rank() == 1);
    if (runtime.rank() == 1) {
      // Reduces its slices, in slow motion, so that the other rank sees the end of the round first.
      while (!first_round_over) {
        set->Poll();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      while (!second_begun) std::this_thread::yield();
    }
    ASSERT_TRUE(set->Wait().ok());
    first_round_over = true;
    EXPECT_EQ(set->contributors(0), 1);
    EXPECT_EQ(set->contributors(1), 2);
    round(true);
    second_begun = true;
    ASSERT_TRUE(set->Wait().ok());
    EXPECT_EQ(set->contributors(0), 2);
  });
}

TEST_P(SetTest, SeveralTypesAndOperators) {
  Run(3, [](Runtime& runtime) {
    SetSpec spec = Spec("mixed", {1000, 10, 77}, DType::kFloat32, ReduceOp::kMax);
    spec.tensors[1].dtype = DType::kInt32;
    spec.tensors[2].dtype = DType::kFloat64;
    const Sets set = Declare(runtime, spec);
    const int me = runtime.rank();
    for (int round = 0; round < 3; ++round) {
      Fill(*set, 0, static_cast<float>(me));
      std::fill_n(static_cast<int32_t*>(set->slot(1).data), 10, -me);
      std::fill_n(static_cast<double*>(set->slot(2).data), 77, 100.0 + me);
      for (int t = 0; t < 3; ++t) ASSERT_TRUE(set->Mark(t).ok());
      ASSERT_TRUE(set->Close().ok());
      ASSERT_TRUE(set->Wait().ok());
      ExpectAll(*set, 0, 2);
      EXPECT_EQ(static_cast<const int32_t*>(set->slot(1).data)[9], 0);
      EXPECT_EQ(static_cast<const double*>(set->slot(2).data)[76], 102.0);
    }
    EXPECT_NE(set->buckets()[0], set->buckets()[1]);
  });
}

TEST_P(SetTest, TwoSetsAtOnce) {
  Run(3, [](Runtime& runtime) {
    const Sets a = Declare(runtime, Spec("a", {30'000, 100}));
    const Sets b = Declare(runtime, Spec("b", {50, 40'000}));
    for (int round = 0; round < 20; ++round) {
      // Ranks use them in different orders.
      Set* first = runtime.rank() == 1 ? b.get() : a.get();
      Set* second = runtime.rank() == 1 ? a.get() : b.get();
      MarkAll(*first, first == a.get() ? 1 : 2);
      MarkAll(*second, second == a.get() ? 1 : 2);
      ASSERT_TRUE(first->Close().ok());
      ASSERT_TRUE(second->Close().ok());
      ASSERT_TRUE(a->Wait().ok());
      ASSERT_TRUE(b->Wait().ok());
      ExpectAll(*a, 0, 3);
      ExpectAll(*b, 1, 6);
    }
  });
}

// A metric in the middle of a backward pass: it waits for no tensor.
TEST_P(SetTest, OtherOperationsWhileABucketIsOpen) {
  Run(3, [](Runtime& runtime) {
    const Sets set = Declare(runtime, Spec("s", {20'000, 20'000, 20'000}));
    for (int round = 0; round < 5; ++round) {
      for (int t = 0; t < 2; ++t) {
        Fill(*set, t, 1);
        ASSERT_TRUE(set->Mark(t).ok());
        ASSERT_TRUE(TryAllreduce(runtime).ok());
        ASSERT_TRUE(TryAllreduce(runtime, "metric").ok());
        EXPECT_TRUE(set->round_open());
      }
      ASSERT_TRUE(set->Close().ok());
      EXPECT_FALSE(set->round_open());
      Call large = Call::Allreduce("", 100'000);
      ASSERT_TRUE(runtime.Run(*large).ok());
      ASSERT_TRUE(set->Wait().ok());
      ExpectAll(*set, 1, 3);
      EXPECT_EQ(set->contributors(2), 0);
    }
  });
}

TEST_P(SetTest, WrongUseIsRefusedAndHarmsNothing) {
  Run(2, [](Runtime& runtime) {
    const Sets set = Declare(runtime, Spec("s", {10, 20}));
    EXPECT_TRUE(set->Wait().ok());  // nothing closed yet: nothing to wait for
    ASSERT_TRUE(set->Mark(0).ok());
    EXPECT_THAT(set->Mark(0).ToString(), AllOf(HasSubstr("'t0'"), HasSubstr("twice")));
    EXPECT_EQ(set->Poison(0, "x").code(), Code::kInvalidArgument);
    EXPECT_THAT(set->Mark(2).ToString(), HasSubstr("0 to 1"));
    EXPECT_EQ(set->Mark(-1).code(), Code::kInvalidArgument);
    ASSERT_TRUE(set->Close().ok());
    ASSERT_TRUE(set->Wait().ok());
    GoodRound(runtime, *set);
  });
}

// ---- declaring ----

TEST_P(SetTest, DeclarationsThatDiffer) {
  struct Difference {
    std::function<void(SetSpec&)> change;
    std::vector<std::string> texts;
  };
  const std::vector<Difference> differences = {
      {[](SetSpec& s) { s.tensors[1].shape.dims[0] = 21; }, {"[20]", "[21]", "'t1'"}},
      {[](SetSpec& s) { s.tensors[0].dtype = DType::kFloat64; }, {"float32", "float64"}},
      {[](SetSpec& s) { s.tensors[0].name = "other"; }, {"'t0'", "'other'"}},
      {[](SetSpec& s) { s.tensors.pop_back(); }, {"1 tensors", "2 tensors"}},
      {[](SetSpec& s) { s.op = ReduceOp::kAverage; }, {"sum", "average"}},
      {[](SetSpec& s) { s.postscale = 3; }, {"postscale 3"}},
  };
  Run(3, [&](Runtime& runtime) {
    for (const Difference& difference : differences) {
      SetSpec spec = Spec("s", {10, 20});
      if (runtime.rank() == 2) difference.change(spec);
      const Status status = runtime.DeclareSet(spec).status();
      EXPECT_EQ(status.code(), Code::kMismatch);
      EXPECT_THAT(status.ToString(), AllOf(HasSubstr("set 's'"), HasSubstr("rank 2 sent"),
                                           HasSubstr("ranks 0, 1 sent")));
      for (const std::string& text : difference.texts) {
        EXPECT_THAT(status.ToString(), HasSubstr(text));
      }
      const Sets set = Declare(runtime, Spec("s", {10, 20}));
      GoodRound(runtime, *set);
    }
  });
}

TEST_P(SetTest, BadDeclarations) {
  Run(2, [](Runtime& runtime) {
    EXPECT_EQ(runtime.DeclareSet(Spec("", {1})).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(runtime.DeclareSet(Spec(std::string(1024, 's'), {1})).status().code(),
              Code::kInvalidArgument);
    SetSpec twice = Spec("s", {1, 1});
    twice.tensors[1].name = "t0";
    const bool odd = runtime.rank() == 1;
    const Status status = runtime.DeclareSet(odd ? twice : Spec("s", {1, 1})).status();
    EXPECT_EQ(status.code(), odd ? Code::kInvalidArgument : Code::kMismatch);
    EXPECT_THAT(status.ToString(), HasSubstr("'t0' appears twice"));
    GoodRound(runtime, *Declare(runtime, Spec("s", {1, 1})));
  });
}

TEST_P(SetTest, TooLittleMemoryOnOneRankIsAgreedUpon) {
  Run(
      3,
      [](Runtime& runtime) {
        const Status status = runtime.DeclareSet(Spec("large", {1'000'000})).status();
        EXPECT_EQ(status.code(), Code::kOutOfMemory);
        EXPECT_THAT(status.ToString(), AllOf(HasSubstr("rank 1"), HasSubstr("RONDE_ARENA_MAX")));
        GoodRound(runtime, *Declare(runtime, Spec("small", {1000})));
      },
      [](Config& config) {
        if (config.rank == 1) config.arena_max_bytes = 1 << 20;
      });
}

TEST_P(SetTest, AnEmptySet) {
  Run(2, [](Runtime& runtime) {
    const Sets set = Declare(runtime, Spec("none", {}));
    for (int round = 0; round < 3; ++round) GoodRound(runtime, *set);
    EXPECT_EQ(set->Mark(0).code(), Code::kInvalidArgument);
  });
}

// The declaration is larger than a socket takes at once.
TEST_P(SetTest, AVeryLongDeclaration) {
  Run(2, [](Runtime& runtime) {
    SetSpec spec;
    spec.name = "many";
    spec.op = ReduceOp::kSum;
    for (int t = 0; t < 5000; ++t) {
      spec.tensors.push_back({std::string(300, 'x') + std::to_string(t),
                              Shape::Of(std::vector<int64_t>{2}), DType::kFloat32});
    }
    GoodRound(runtime, *Declare(runtime, spec));
  });
}

// Rank 1 comes only when rank 0 has been told that a second declaration at once is not possible.
TEST_P(SetTest, TheSameSetIsDeclaredOnceAtATime) {
  std::latch refused(1);
  Run(2, [&](Runtime& runtime) {
    if (runtime.rank() == 1) refused.wait();
    std::atomic<int> declared{0};
    const auto declare = [&] {
      const Result<Sets> set = runtime.DeclareSet(Spec("s", {10}));
      if (set.ok()) {
        ++declared;
      } else {
        EXPECT_EQ(set.status().code(), Code::kInvalidArgument);
        EXPECT_THAT(set.status().ToString(), HasSubstr("being declared already"));
        refused.count_down();
      }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i <= 1 - runtime.rank(); ++i) threads.emplace_back(declare);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(declared, 1);
  });
}

// ---- the end of a set ----

TEST_P(SetTest, DestroyedAndDeclaredAgain) {
  Run(3, [](Runtime& runtime) {
    for (int i = 0; i < 20; ++i) {
      const Sets set = Declare(runtime, Spec("again", {1000 + i, 3}));
      for (int round = 0; round < 3; ++round) GoodRound(runtime, *set);
    }
  });
}

TEST_P(SetTest, SlotsOutliveTheSet) {
  Run(2, [](Runtime& runtime) {
    Sets set = Declare(runtime, Spec("s", {1000}));
    GoodRound(runtime, *set);
    const std::shared_ptr<void> memory = set->slot_memory();
    const TensorView slot = set->slot(0);
    set.reset();
    EXPECT_EQ(static_cast<const float*>(slot.data)[999], 2);
  });
}

TEST_P(SetTest, DestroyedWhileARoundIsOpen) {
  Run(2, [](Runtime& runtime) {
    Sets set = Declare(runtime, Spec("s", {1000, 1000}));
    ASSERT_TRUE(set->Mark(0).ok());
    if (runtime.rank() == 0) {
      ASSERT_TRUE(set->Close().ok());
    }
    set.reset();
    GoodRound(runtime, *Declare(runtime, Spec("s", {1000, 1000})));
  });
}

// A shutdown with a round in flight, then the set's end, then the Runtime's.
TEST_P(SetTest, OutlivesTheShutdown) {
  Run(2, [](Runtime& runtime) {
    const Sets set = Declare(runtime, Spec("s", {1000}));
    GoodRound(runtime, *set);
    if (runtime.rank() == 0) {
      MarkAll(*set, 1);
      ASSERT_TRUE(set->Close().ok());
      // Rank 1 leaves: a group error, which is told again and again.
      EXPECT_EQ(set->Wait().code(), Code::kPeerLost);
      EXPECT_EQ(set->Wait().code(), Code::kPeerLost);
    }
    runtime.Shutdown();
    EXPECT_EQ(set->Mark(0).code(), Code::kNotInitialized);
    EXPECT_EQ(set->Close().code(), Code::kNotInitialized);
  });
}

INSTANTIATE_TEST_SUITE_P(Overlap, SetTest, ::testing::Values(Overlap::kOn, Overlap::kOff),
                         [](const ::testing::TestParamInfo<Overlap>& tested) {
                           return tested.param == Overlap::kOn ? "on" : "off";
                         });

}  // namespace
}  // namespace ronde
