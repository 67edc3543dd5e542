// Ranks that disagree: the work fails on every rank with ranks and values, and the job goes on.
#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <utility>
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

struct Disagreement {
  std::string label;
  OpKind kind = OpKind::kAllreduce;
  std::function<void(Call&)> agreed;  // what all ranks but one do
  std::function<void(Call&)> odd;
  std::vector<std::string> values;  // that every rank must read, beside "rank 2" and "ranks 0, 1"
};

std::function<void(Call&)> Sum(double prescale, ReduceOp op = ReduceOp::kSum,
                               double postscale = 1) {
  return [=](Call& call) {
    call.Add({4});
    call->prescale = prescale;
    call->postscale = postscale;
    call->op = op;
  };
}

std::vector<Disagreement> Disagreements() {
  const auto dims = [](std::vector<int64_t> d, DType dtype = DType::kFloat32) {
    return [=](Call& call) { call.Add(d, dtype); };
  };
  const auto root = [](int r) {
    return [=](Call& call) {
      call.Add({4});
      call->root = r;
    };
  };
  const auto tensors = [](int count) {
    return [=](Call& call) {
      for (int i = 0; i < count; ++i) call.Add({4});
    };
  };
  const auto group = [](std::vector<DType> dtypes) {
    return [=](Call& call) {
      for (const DType dtype : dtypes) call.Add({4}, dtype);
    };
  };
  const auto splits = [](std::vector<int64_t> s) {
    return [=](Call& call) { call.Add({6, 2}).Splits(s); };
  };
  return {
      {"dtype",
       OpKind::kAllreduce,
       dims({4}),
       dims({4}, DType::kFloat64),
       {"float32 [4]", "float64 [4]"}},
      {"shape", OpKind::kAllreduce, dims({4, 5}), dims({4, 6}), {"float32 [4,5]", "float32 [4,6]"}},
      {"size", OpKind::kAllreduce, dims({20000}), dims({20001}), {"[20000]", "[20001]"}},
      {"rank", OpKind::kAllreduce, dims({20}), dims({4, 5}), {"[20]", "[4,5]"}},
      {"operator",
       OpKind::kAllreduce,
       Sum(1),
       Sum(1, ReduceOp::kMax),
       {"operator sum", "operator max"}},
      {"prescale", OpKind::kAllreduce, Sum(1), Sum(0.5), {"prescale 1", "prescale 0.5"}},
      {"postscale",
       OpKind::kAllreduce,
       Sum(0.5, ReduceOp::kSum, 2),
       Sum(0.5, ReduceOp::kSum, 4),
       {"postscale 2", "postscale 4"}},
      {"root", OpKind::kBroadcast, root(0), root(1), {"root 0", "root 1"}},
      {"tensors", OpKind::kAllreduce, tensors(2), tensors(3), {"2 tensors", "3 tensors"}},
      {"group",
       OpKind::kAllreduce,
       group({DType::kFloat32, DType::kFloat32}),
       group({DType::kFloat32, DType::kFloat64}),
       {"tensor 1", "float32 [4]", "float64 [4]"}},
      {"inner", OpKind::kAllgather, dims({4, 5}), dims({3, 6}), {"[*,5]", "[*,6]"}},
      {"rows", OpKind::kReducescatter, dims({6}), dims({7}), {"[6]", "[7]"}},
      {"invalid", OpKind::kAlltoall, splits({1, 2, 3}), splits({1, 2, 4}), {"[1,2,4]", "7", "6"}},
      {"scale",
       OpKind::kAllreduce,
       Sum(1),
       Sum(std::numeric_limits<double>::infinity()),
       {"prescale factor is inf", "finite"}},
  };
}

// How often the operation has run well under its name before the ranks disagree; -1: no name.
class MismatchTest : public ::testing::TestWithParam<int> {};

TEST_P(MismatchTest, EveryRankReadsRanksAndValuesAndTheJobGoesOn) {
  constexpr int kRanks = 3;
  constexpr int kOdd = 2;
  for (const Disagreement& d : Disagreements()) {
    SCOPED_TRACE(d.label);
    std::mutex mutex;
    std::map<int, Status> statuses;
    RunRankThreads(kRanks, [&](Runtime& runtime) {
      const std::string name = GetParam() < 0 ? "" : "op." + d.label;
      for (int i = 0; i < GetParam(); ++i) {
        Call good(d.kind, name);
        d.agreed(good);
        const Status status = runtime.Run(*good);
        EXPECT_TRUE(status.ok()) << status.ToString();
      }
      Call call(d.kind, name);
      (runtime.rank() == kOdd ? d.odd : d.agreed)(call);
      const Status status = runtime.Run(*call);
      const Status after = TryAllreduce(runtime, name.empty() ? "" : "after");
      EXPECT_TRUE(after.ok()) << after.ToString();
      Call again(d.kind, name);
      d.agreed(again);
      const Status repeated = runtime.Run(*again);
      EXPECT_TRUE(repeated.ok()) << repeated.ToString();
      const std::lock_guard<std::mutex> lock(mutex);
      statuses[runtime.rank()] = status;
    });
    const bool own_fault = d.label == "invalid" || d.label == "scale";
    for (int r = 0; r < kRanks; ++r) {
      const std::string text = statuses[r].ToString();
      const bool at_fault = own_fault && r == kOdd;
      EXPECT_EQ(statuses[r].code(), at_fault ? Code::kInvalidArgument : Code::kMismatch) << text;
      for (const std::string& value : d.values) EXPECT_THAT(text, HasSubstr(value)) << r;
      EXPECT_THAT(text, HasSubstr(at_fault ? "" : "rank 2"));
      EXPECT_THAT(text, HasSubstr(own_fault ? "" : "ranks 0, 1"));
      EXPECT_THAT(text, HasSubstr(std::string(OpKindName(d.kind))));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Names, MismatchTest, ::testing::Values(-1, 0, 2),
                         [](const ::testing::TestParamInfo<int>& tested) {
                           return tested.param < 0    ? "unnamed"
                                  : tested.param == 0 ? "firstUse"
                                                      : "cached";
                         });

TEST(MismatchTest, KindsDiffer) {
  for (const std::string name : {"", "x"}) {
    RunRankThreads(2, [&](Runtime& runtime) {
      Call call(runtime.rank() == 0 ? OpKind::kAllreduce : OpKind::kBroadcast, name);
      call.Add({4});
      const Status status = runtime.Run(*call);
      EXPECT_EQ(status.code(), Code::kMismatch);
      EXPECT_THAT(status.ToString(),
                  AllOf(HasSubstr("rank 0 sent allreduce"), HasSubstr("rank 1 sent broadcast")));
      EXPECT_TRUE(TryAllreduce(runtime, name).ok());
    });
  }
}

// Operations that one rank would fuse, and another one means differently.
TEST(MismatchTest, OneWorkOfAFusedBatchFailsAlone) {
  enum Odd { kOperator, kKind, kShape, kInvalid, kScale };
  for (const Odd odd : {kOperator, kKind, kShape, kInvalid, kScale}) {
    SCOPED_TRACE(odd);
    RunRankThreads(2, [&](Runtime& runtime) {
      constexpr int kWorks = 6;
      constexpr int kOddWork = 3;
      const auto name = [](int i) { return "fused." + std::to_string(i); };
      for (int round = 0; round < 5; ++round) {
        std::vector<std::unique_ptr<Call>> calls;
        std::vector<Work> works;
        for (int i = 0; i < kWorks; ++i) {
          const bool differs = round > 0 && i == kOddWork && runtime.rank() == 1;
          calls.push_back(std::make_unique<Call>(
              differs && odd == kKind ? OpKind::kBroadcast : OpKind::kAllreduce, name(i)));
          Call& call = *calls.back();
          call.Add({differs && odd == kShape ? 9 : 8}, DType::kFloat32, 1);
          if (differs && odd == kOperator) call->op = ReduceOp::kMax;
          if (differs && odd == kScale) call->postscale = 2;
          if (differs && odd == kInvalid) call->invalid = Status::InvalidArgument("not this one");
        }
        // Everything is there before anybody waits, in opposite orders, so that batches form.
        for (int i = 0; i < kWorks; ++i) {
          const int next = runtime.rank() == 0 ? i : kWorks - 1 - i;
          Result<Work> work = runtime.Submit(**calls[static_cast<size_t>(next)]);
          ASSERT_TRUE(work.ok()) << work.status().ToString();
          works.push_back(*work);
        }
        for (int i = 0; i < kWorks; ++i) {
          const int which = runtime.rank() == 0 ? i : kWorks - 1 - i;
          const Status status = runtime.Wait(works[static_cast<size_t>(i)]);
          if (round > 0 && which == kOddWork) {
            const bool own = odd == kInvalid && runtime.rank() == 1;
            EXPECT_EQ(status.code(), own ? Code::kInvalidArgument : Code::kMismatch)
                << status.ToString();
            EXPECT_THAT(status.ToString(), HasSubstr(own ? "not this one" : "rank 1"));
          } else {
            EXPECT_TRUE(status.ok()) << status.ToString();
            EXPECT_EQ(calls[static_cast<size_t>(which)]->value(), 2);
          }
        }
      }
    });
  }
}

TEST(MismatchTest, AGroupedAlltoallSharesEachTensorsOwnRows) {
  RunRankThreads(2, [&](Runtime& runtime) {
    Call call(OpKind::kAlltoall);
    call.Add({2}, DType::kFloat32, static_cast<float>(runtime.rank()));
    call.Add({600}, DType::kFloat32, static_cast<float>(10 + runtime.rank()));
    Work work;
    const Status status = runtime.Run(*call, {}, &work);
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_EQ(work.output(1).count, 600);
    const auto* out = static_cast<const float*>(work.output(1).data);
    for (int i = 0; i < 600; ++i) ASSERT_EQ(out[i], i < 300 ? 10 : 11) << i;
  });
}

// A rule for a middle range: the rank whose own size lies in it must post what the others read.
TEST(MismatchTest, OneshotWithAHoleInItsRange) {
  RunRankThreads(
      2,
      [&](Runtime& runtime) {
        for (int round = 0; round < 4; ++round) {
          Call call(OpKind::kAllgather);
          call.Add({runtime.rank() == 0 ? 500 : 5000}, DType::kFloat32,
                   static_cast<float>(round + runtime.rank()));
          Work work;
          const Status status = runtime.Run(*call, {}, &work);
          ASSERT_TRUE(status.ok()) << status.ToString();
          const auto* out = static_cast<const float*>(work.output().data);
          for (int i = 0; i < 5500; ++i) {
            ASSERT_EQ(out[i], static_cast<float>(round + (i < 500 ? 0 : 1))) << i;
          }
        }
      },
      [](Config& config) { config.rules = "allgather:1K-3K=shm/cached@64K"; });
}

}  // namespace
}  // namespace ronde
