// Single rules of docs/numeric.md, each with the values that would betray a kernel that breaks it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/kernels/reduce.h"
#include "tests/unit/kernels_reference.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ronde::kernels {
namespace {

using testing::HasSubstr;

template <class T>
std::vector<T> Reduce(Isa isa, DType dtype, ReduceOp op, const std::vector<std::vector<T>>& inputs,
                      const reference::Factors& factors = {}) {
  std::vector<const void*> srcs;
  for (const auto& input : inputs) srcs.push_back(input.data());
  std::vector<T> out(inputs[0].size());
  void* dst = out.data();
  ReduceArgs args{};
  args.srcs = srcs.data();
  args.num_srcs = static_cast<int>(srcs.size());
  args.dsts = &dst;
  args.num_dsts = 1;
  args.count = out.size();
  args.prescale = factors.prescale;
  args.postscale = factors.postscale;
  args.divisor = factors.divisor;
  FindReduce(isa, dtype, op)(args);
  return out;
}

class ContractTest : public testing::TestWithParam<Isa> {};

TEST_P(ContractTest, SumsFollowThePairwiseTree) {
  // Small terms are lost beside 1e8 but not beside 0: other orders give other sums.
  const auto sum = [&](std::vector<float> terms) {
    std::vector<std::vector<float>> inputs;
    for (const float term : terms) inputs.push_back(std::vector<float>(21, term));
    const auto out = Reduce<float>(GetParam(), DType::kFloat32, ReduceOp::kSum, inputs);
    EXPECT_THAT(out, testing::Each(out[0]));
    return out[0];
  };
  EXPECT_EQ(sum({1e8f, 1, -1e8f}), 0);                 // (1e8 + 1) - 1e8
  EXPECT_EQ(sum({1e8f, -1e8f, 1}), 1);                 // (1e8 - 1e8) + 1
  EXPECT_EQ(sum({1e8f, -1e8f, 1, 1}), 2);              // (1e8 - 1e8) + (1 + 1)
  EXPECT_EQ(sum({1e8f, 1, -1e8f, 1}), 0);              // (1e8 + 1) + (-1e8 + 1)
  EXPECT_EQ(sum({1e8f, 3, -1e8f, 3, 1}), 1);           // ((1e8 + 3) + (-1e8 + 3)) + 1
  EXPECT_EQ(sum({1, 1, 1, 1, 1e8f, -1e8f}), 4);        // T[0,4) + (1e8 - 1e8)
  EXPECT_EQ(sum({0, 0, 0, -1e8f, 1e8f, 1, 1}), 0);     // -1e8 + ((1e8 + 1) + 1)
  EXPECT_EQ(sum({1e8f, 1, 1, 1, -1e8f, 1, 1, 1}), 0);  // T[0,4) + T[4,8), both blind to ones
}

TEST_P(ContractTest, SixteenBitValuesSurviveConversion) {
  std::vector<uint16_t> all(65536);
  std::iota(all.begin(), all.end(), 0);
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    const auto out = Reduce<uint16_t>(GetParam(), dtype, ReduceOp::kSum, {all});
    const auto* got = reinterpret_cast<const char*>(out.data());
    const auto* expected = reinterpret_cast<const char*>(all.data());
    EXPECT_EQ(reference::FirstDifference(dtype, got, expected, all.size()), all.size());
  }
}

TEST_P(ContractTest, SixteenBitValuesRoundToNearestEven) {
  std::vector<uint16_t> all(65536);
  std::iota(all.begin(), all.end(), 0);
  reference::Bytes bytes(65536 * 2);
  std::memcpy(bytes.data(), all.data(), bytes.size());
  // Halves make ties, the others fall beside them; small ones reach the denormals, large ones inf.
  const double factors[] = {0.5,     0.25, 1.5, 1.25, 1.0 / 3, 1 + 0x1p-11, 1 + 0x1p-12, 1 - 0x1p-9,
                            0x1p-10, 3e-5, 257, 4e3,  0x1p-20, 0x1.8p-126,  1e-38};
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    for (const double factor : factors) {
      const reference::Factors f{factor, 1, 1};
      const auto expected = reference::Reduce(dtype, ReduceOp::kSum, {bytes}, all.size(), f);
      const auto out = Reduce<uint16_t>(GetParam(), dtype, ReduceOp::kSum, {all}, f);
      const auto* got = reinterpret_cast<const char*>(out.data());
      EXPECT_EQ(reference::FirstDifference(dtype, got, expected.data(), all.size()), all.size())
          << DTypeName(dtype) << " times " << factor;
    }
  }
}

TEST_P(ContractTest, SixteenBitSumsAreRoundedOnce) {
  // 2048 + 1 + 1 is 2050 in float32 and in one rounding; with a rounding after each, 2048.
  const auto out =
      Reduce<uint16_t>(GetParam(), DType::kFloat16, ReduceOp::kSum, {{0x6800}, {0x3c00}, {0x3c00}});
  EXPECT_EQ(out[0], 0x6801);
  // 65504 + 65504 is too large for the type, its average is not.
  const reference::Factors half{1, 1, 2};
  EXPECT_EQ(Reduce<uint16_t>(GetParam(), DType::kFloat16, ReduceOp::kSum, {{0x7bff}, {0x7bff}})[0],
            0x7c00);
  EXPECT_EQ(Reduce<uint16_t>(GetParam(), DType::kFloat16, ReduceOp::kAverage, {{0x7bff}, {0x7bff}},
                             half)[0],
            0x7bff);
}

TEST_P(ContractTest, MinAndMaxPropagateNanFromEverySource) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    for (int num_srcs = 1; num_srcs <= 9; ++num_srcs) {
      for (int poisoned = 0; poisoned < num_srcs; ++poisoned) {
        std::vector<std::vector<float>> inputs(num_srcs, std::vector<float>(19, 1.0f));
        inputs[poisoned].assign(19, nan);
        for (const float x : Reduce<float>(GetParam(), DType::kFloat32, op, inputs)) {
          EXPECT_TRUE(std::isnan(x)) << num_srcs << " sources, NaN in " << poisoned;
        }
      }
    }
  }
}

TEST_P(ContractTest, MinAndMaxKeepTheFirstOfEqualZeros) {
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    const std::vector<float> plus(19, 0.0f);
    const std::vector<float> minus(19, -0.0f);
    for (const float x : Reduce<float>(GetParam(), DType::kFloat32, op, {plus, minus})) {
      EXPECT_FALSE(std::signbit(x));
    }
    for (const float x : Reduce<float>(GetParam(), DType::kFloat32, op, {minus, plus})) {
      EXPECT_TRUE(std::signbit(x));
    }
  }
}

TEST_P(ContractTest, IntegerSumsWrapAndAveragesDoNot) {
  const std::vector<int64_t> most(5, std::numeric_limits<int64_t>::max());
  const auto sum = Reduce<int64_t>(GetParam(), DType::kInt64, ReduceOp::kSum, {most, most});
  EXPECT_THAT(sum, testing::Each(-2));
  const reference::Factors half{1, 1, 2};
  EXPECT_EQ(Reduce<int64_t>(GetParam(), DType::kInt64, ReduceOp::kAverage, {most, most}, half),
            most);
  EXPECT_EQ(Reduce<int8_t>(GetParam(), DType::kInt8, ReduceOp::kAverage, {{-1}, {0}}, half)[0], -1);
  EXPECT_EQ(Reduce<uint8_t>(GetParam(), DType::kUint8, ReduceOp::kSum, {{200}, {100}})[0], 44);
}

TEST_P(ContractTest, UnitFactorsLeaveLargeIntegersAlone) {
  const int64_t odd = (int64_t{1} << 60) + 1;  // not a float64
  EXPECT_EQ(Reduce<int64_t>(GetParam(), DType::kInt64, ReduceOp::kSum, {{odd}}, {1, 1, 1})[0], odd);
  EXPECT_EQ(Reduce<int64_t>(GetParam(), DType::kInt64, ReduceOp::kMax, {{odd}}, {1, 2, 1})[0],
            int64_t{1} << 61);
}

#if defined(__x86_64__)

TEST_P(ContractTest, CallersFloatingPointModeNeitherMattersNorChanges) {
  constexpr unsigned kFlushToZero = 0x8000;
  constexpr unsigned kDenormalsAreZero = 0x40;
  constexpr unsigned kRoundUp = 0x4000;
  const float tiny = std::numeric_limits<float>::denorm_min();
  const std::vector<std::vector<float>> denormals(3, std::vector<float>(37, tiny));
  const std::vector<std::vector<float>> inexact = {std::vector<float>(37, 1.0f),
                                                   std::vector<float>(37, 0x1p-30f)};
  const std::vector<std::vector<uint16_t>> halves(2, std::vector<uint16_t>(37, 1));
  const unsigned before = _mm_getcsr();
  const unsigned callers = before | kFlushToZero | kDenormalsAreZero | kRoundUp;
  _mm_setcsr(callers);
  const auto sum = Reduce<float>(GetParam(), DType::kFloat32, ReduceOp::kSum, denormals);
  const auto rounded = Reduce<float>(GetParam(), DType::kFloat32, ReduceOp::kSum, inexact);
  const auto half_sum = Reduce<uint16_t>(GetParam(), DType::kFloat16, ReduceOp::kSum, halves);
  const auto bfloat_sum = Reduce<uint16_t>(GetParam(), DType::kBfloat16, ReduceOp::kSum, halves);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(after, callers);
  EXPECT_THAT(sum, testing::Each(3 * tiny));
  EXPECT_THAT(rounded, testing::Each(1.0f));
  EXPECT_THAT(half_sum, testing::Each(2));
  EXPECT_THAT(bfloat_sum, testing::Each(2));
}

#endif

TEST_P(ContractTest, OnlyTheAverageOfBoolIsUndefined) {
  for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
    for (int op = 0; op < kNumReduceOps; ++op) {
      const bool undefined = static_cast<DType>(dtype) == DType::kBool &&
                             static_cast<ReduceOp>(op) == ReduceOp::kAverage;
      EXPECT_EQ(
          FindReduce(GetParam(), static_cast<DType>(dtype), static_cast<ReduceOp>(op)) == nullptr,
          undefined);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, ContractTest, testing::ValuesIn(reference::SupportedIsas()),
                         [](const auto& param_info) {
                           return std::string(IsaName(param_info.param));
                         });

TEST(IsaTest, NamesAreParsed) {
  EXPECT_EQ(*ParseIsa("auto"), DetectIsa());
  EXPECT_EQ(*ParseIsa("baseline"), Isa::kBaseline);
  EXPECT_EQ(*ParseIsa(IsaName(DetectIsa())), DetectIsa());
  const auto unknown = ParseIsa("sse9");
  EXPECT_EQ(unknown.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.status().message()),
              testing::AllOf(HasSubstr("'sse9'"), HasSubstr("auto, baseline, avx2, avx512")));
}

TEST(FillIdentityTest, IdentitiesChangeNothing) {
  std::mt19937_64 random(7);
  constexpr size_t kCount = 333;
  for (int d = 0; d < kNumDTypes; ++d) {
    for (int o = 0; o < kNumReduceOps; ++o) {
      const auto dtype = static_cast<DType>(d);
      const auto op = static_cast<ReduceOp>(o);
      if (dtype == DType::kBool && op == ReduceOp::kAverage) continue;
      const auto data = reference::RandomElements(dtype, kCount, random);
      reference::Bytes identity(data.size() + 1);
      FillIdentity(dtype, op, identity.data() + 1, kCount);  // at an odd address
      identity.erase(identity.begin());
      const auto alone = reference::Reduce(dtype, op, {data}, kCount, {});
      const auto with = reference::Reduce(dtype, op, {data, identity}, kCount, {});
      const size_t at = reference::FirstDifference(dtype, with.data(), alone.data(), kCount);
      const auto* element = with.data() + at * DTypeSize(dtype);
      // -0 + 0 is +0: the one value that the sum's identity does change.
      const bool zero =
          at < kCount && IsFloating(dtype) && op <= ReduceOp::kAverage &&
          std::all_of(element, element + DTypeSize(dtype), [](char c) { return c == 0; });
      EXPECT_TRUE(at == kCount || zero) << DTypeName(dtype) << ' ' << ReduceOpName(op);
    }
  }
}

TEST(ScaleTest, ScalesInPlaceAndRoundsOnce) {
  std::vector<int32_t> ints = {7, -7, std::numeric_limits<int32_t>::max(), 0};
  Scale(DType::kInt32, ints.data(), ints.data(), ints.size(), 0.5);
  EXPECT_THAT(ints, testing::ElementsAre(3, -3, 1073741823, 0));
  Scale(DType::kInt32, ints.data(), ints.data(), ints.size(), -1e10);
  EXPECT_THAT(ints, testing::ElementsAre(std::numeric_limits<int32_t>::min(),
                                         std::numeric_limits<int32_t>::max(),
                                         std::numeric_limits<int32_t>::min(), 0));
  const std::vector<uint8_t> bools = {0, 1, 7};
  std::vector<uint8_t> scaled(3);
  Scale(DType::kBool, bools.data(), scaled.data(), 3, 0.25);
  EXPECT_THAT(scaled, testing::ElementsAre(0, 1, 1));
  Scale(DType::kBool, bools.data(), scaled.data(), 3, 0);
  EXPECT_THAT(scaled, testing::ElementsAre(0, 0, 0));
  std::vector<float> floats(100, 3.0f);
  Scale(DType::kFloat32, floats.data(), floats.data(), floats.size(), 0.1);
  EXPECT_THAT(floats, testing::Each(3.0f * 0.1f));
}

}  // namespace
}  // namespace ronde::kernels
