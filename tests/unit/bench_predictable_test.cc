#include "tuning/bench/predictable.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "core/kernels/reduce.h"

namespace ronde::bench {
namespace {

constexpr int64_t kCount = 333;

struct Case {
  DType dtype;
  ReduceOp op;
};

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (int d = 0; d < kNumDTypes; ++d) {
    for (int o = 0; o < kNumReduceOps; ++o) {
      const Case c = {static_cast<DType>(d), static_cast<ReduceOp>(o)};
      if (kernels::FindReduce(kernels::Isa::kBaseline, c.dtype, c.op) != nullptr) {
        cases.push_back(c);
      }
    }
  }
  return cases;
}

// Every rank's input, reduced by the kernels in the order given.
std::vector<char> ReduceInOrder(const PredictableData& data, const Case& c, int ranks,
                                bool reversed) {
  const size_t bytes = static_cast<size_t>(kCount) * DTypeSize(c.dtype);
  std::vector<std::vector<char>> inputs(static_cast<size_t>(ranks), std::vector<char>(bytes));
  std::vector<const void*> sources;
  for (int rank = 0; rank < ranks; ++rank) {
    data.FillInput(rank, inputs[static_cast<size_t>(rank)].data(), kCount);
    sources.push_back(inputs[static_cast<size_t>(rank)].data());
  }
  if (reversed) std::reverse(sources.begin(), sources.end());
  std::vector<char> output(bytes);
  void* destination = output.data();
  kernels::ReduceArgs args{};
  args.srcs = sources.data();
  args.num_srcs = ranks;
  args.dsts = &destination;
  args.num_dsts = 1;
  args.count = static_cast<size_t>(kCount);
  args.divisor = ranks;
  kernels::FindReduce(kernels::Isa::kBaseline, c.dtype, c.op)(args);
  return output;
}

TEST(BenchPredictableTest, EveryTypeAndOperatorIsExactInAnyOrder) {
  for (const Case& c : AllCases()) {
    for (const int ranks : {1, 2, 3, 8, 13}) {
      const PredictableData data(OpKind::kAllreduce, c.dtype, c.op, ranks, 7);
      for (const bool reversed : {false, true}) {
        const std::vector<char> result = ReduceInOrder(data, c, ranks, reversed);
        EXPECT_EQ(data.CountWrong(0, result.data(), kCount, kCount), 0)
            << DTypeName(c.dtype) << " " << ReduceOpName(c.op) << " over " << ranks;
      }
    }
  }
}

TEST(BenchPredictableTest, WrongElementsAreCountedOneByOne) {
  for (const Case& c : AllCases()) {
    const PredictableData data(OpKind::kAllreduce, c.dtype, c.op, 3, 7);
    std::vector<char> result = ReduceInOrder(data, c, 3, false);
    const size_t size = DTypeSize(c.dtype);
    for (const size_t i : {size_t{0}, size_t{17}, static_cast<size_t>(kCount) - 1}) {
      result[i * size + size - 1] = static_cast<char>(result[i * size + size - 1] ^ 0x41);
    }
    EXPECT_EQ(data.CountWrong(0, result.data(), kCount, kCount), 3) << DTypeName(c.dtype);
  }
}

TEST(BenchPredictableTest, DataDependsOnRankSeedAndPlace) {
  const auto inputs = [](int rank, uint64_t seed) {
    const PredictableData data(OpKind::kAllreduce, DType::kFloat32, ReduceOp::kSum, 2, seed);
    std::vector<float> values(64);
    data.FillInput(rank, values.data(), 64);
    return values;
  };
  EXPECT_EQ(inputs(0, 1), inputs(0, 1));
  EXPECT_NE(inputs(0, 1), inputs(1, 1));
  EXPECT_NE(inputs(0, 1), inputs(0, 2));
  EXPECT_NE(inputs(0, 1)[0], inputs(0, 1)[1]);
}

TEST(BenchPredictableTest, MovedPartsComeFromTheirRank) {
  constexpr int kRanks = 3;
  constexpr int64_t kPart = 5;
  const PredictableData data(OpKind::kAlltoall, DType::kInt32, ReduceOp::kSum, kRanks, 1);
  std::vector<std::vector<int32_t>> inputs(kRanks, std::vector<int32_t>(kRanks * kPart));
  for (int rank = 0; rank < kRanks; ++rank) {
    data.FillInput(rank, inputs[static_cast<size_t>(rank)].data(), kRanks * kPart);
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<int32_t> output;
    for (const std::vector<int32_t>& input : inputs) {
      output.insert(output.end(), input.begin() + rank * kPart, input.begin() + (rank + 1) * kPart);
    }
    EXPECT_EQ(data.CountWrong(rank, output.data(), kRanks * kPart, kRanks * kPart), 0);
    EXPECT_GT(data.CountWrong((rank + 1) % kRanks, output.data(), kRanks * kPart, kRanks * kPart),
              0);
  }
}

TEST(BenchPredictableTest, AllgatherAndReducescatter) {
  constexpr int kRanks = 2;
  constexpr int64_t kPart = 6;
  const PredictableData gather(OpKind::kAllgather, DType::kBfloat16, ReduceOp::kSum, kRanks, 1);
  std::vector<uint16_t> gathered(kRanks * kPart);
  for (int rank = 0; rank < kRanks; ++rank) {
    gather.FillInput(rank, gathered.data() + rank * kPart, kPart);
  }
  EXPECT_EQ(gather.CountWrong(1, gathered.data(), kRanks * kPart, kPart), 0);

  const PredictableData scatter(OpKind::kReducescatter, DType::kInt64, ReduceOp::kSum, kRanks, 1);
  std::vector<int64_t> a(kRanks * kPart);
  std::vector<int64_t> b(kRanks * kPart);
  scatter.FillInput(0, a.data(), kRanks * kPart);
  scatter.FillInput(1, b.data(), kRanks * kPart);
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  EXPECT_EQ(scatter.CountWrong(1, a.data() + kPart, kPart, kRanks * kPart), 0);
}

TEST(BenchPredictableTest, HalvesAreEncodedAsIeeeDoes) {
  for (const auto& [value, bits] : {std::pair<int64_t, uint16_t>{0, 0},
                                    {1, 0x3c00},
                                    {2, 0x4000},
                                    {3, 0x4200},
                                    {-1, 0xbc00},
                                    {2047, 0x67ff},
                                    {2048, 0x6800}}) {
    uint16_t stored = 0;
    StoreInteger(DType::kFloat16, value, &stored);
    EXPECT_EQ(stored, bits) << value;
  }
}

}  // namespace
}  // namespace ronde::bench
