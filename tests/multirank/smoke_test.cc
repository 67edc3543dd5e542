// The first thing to look at when nothing works: two ranks, one operation of each kind of path.
#include <gmock/gmock.h>

#include <numeric>
#include <vector>

#include "tests/support/ranks.h"

namespace ronde {
namespace {

using testing::RunRankThreads;

Tensor Whole(std::vector<float>& data) {
  const int64_t count = static_cast<int64_t>(data.size());
  return {TensorView{data.data(), count, DType::kFloat32, {}},
          Shape::Of(std::vector<int64_t>{count})};
}

void ReduceAndCheck(Runtime& runtime, size_t count, std::string_view name) {
  std::vector<float> data(count);
  for (size_t i = 0; i < count; ++i)
    data[i] = static_cast<float>(i % 1000 + static_cast<size_t>(runtime.rank()));
  const Tensor tensor = Whole(data);
  Request request;
  request.kind = OpKind::kAllreduce;
  request.name = name;
  request.inputs = {&tensor, 1};
  request.outputs = {&tensor.view, 1};
  const Status status = runtime.Run(request);
  ASSERT_TRUE(status.ok()) << status.ToString();
  const int n = runtime.size();
  for (size_t i = 0; i < count; ++i) {
    ASSERT_EQ(data[i], static_cast<float>(static_cast<size_t>(n) * (i % 1000)) +
                           static_cast<float>(n * (n - 1) / 2))
        << i;
  }
}

TEST(SmokeTest, EveryPath) {
  for (const int n : {1, 2, 3, 4}) {
    RunRankThreads(n, [](Runtime& runtime) {
      for (const size_t count :
           {size_t{1}, size_t{1000}, size_t{8192}, size_t{8193}, size_t{3'000'001}}) {
        ReduceAndCheck(runtime, count, "");
        ReduceAndCheck(runtime, count, "a");
        ReduceAndCheck(runtime, count, "b");
      }
    });
  }
}

TEST(SmokeTest, Set) {
  for (const int n : {1, 2, 3}) {
    RunRankThreads(n, [](Runtime& runtime) {
      SetSpec spec;
      spec.name = "gradients";
      spec.op = ReduceOp::kSum;
      for (int i = 0; i < 10; ++i) {
        spec.tensors.push_back(
            {"t" + std::to_string(i), Shape::Of(std::vector<int64_t>{100'000}), DType::kFloat32});
      }
      Result<std::unique_ptr<Set>> set = runtime.DeclareSet(spec);
      ASSERT_TRUE(set.ok()) << set.status().ToString();
      for (int round = 0; round < 5; ++round) {
        for (int t = 0; t < 10; ++t) {
          if (t == 3 && runtime.rank() == 0) continue;  // absent here
          auto* slot = static_cast<float*>((*set)->slot(t).data);
          std::fill(slot, slot + 100'000, static_cast<float>(t + round));
          ASSERT_TRUE((*set)->Mark(t).ok());
        }
        ASSERT_TRUE((*set)->Close().ok());
        const Status status = (*set)->Wait();
        ASSERT_TRUE(status.ok()) << status.ToString();
        for (int t = 0; t < 10; ++t) {
          const int contributors = t == 3 ? runtime.size() - 1 : runtime.size();
          EXPECT_EQ((*set)->contributors(t), contributors);
          const auto* slot = static_cast<const float*>((*set)->slot(t).data);
          EXPECT_EQ(slot[0], static_cast<float>(contributors * (t + round)));
          EXPECT_EQ(slot[99'999], static_cast<float>(contributors * (t + round)));
        }
      }
    });
  }
}

}  // namespace
}  // namespace ronde
