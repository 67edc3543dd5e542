#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "core/kernels/copy.h"
#include "core/kernels/limit.h"

namespace ronde::kernels {
namespace {

TEST(CopyTest, EverySizeAndAlignment) {
  std::vector<char> src(70000);
  for (size_t i = 0; i < src.size(); ++i) src[i] = static_cast<char>(i * 37 + (i >> 8));
  for (const Store store : {Store::kCached, Store::kStreaming}) {
    for (const size_t bytes : {0, 1, 63, 64, 65, 127, 128, 300, 1000, 4096, 65537}) {
      for (const size_t from : {0, 1, 8, 33}) {
        for (const size_t to : {64, 65, 80, 127}) {
          std::vector<char> dst(src.size() + 256, 0x5a);
          auto expected = dst;
          if (bytes > 0) std::memcpy(expected.data() + to, src.data() + from, bytes);
          Copy(dst.data() + to, src.data() + from, bytes, store);
          ASSERT_EQ(dst, expected) << bytes << " bytes from " << from << " to " << to;
        }
      }
    }
  }
}

class LimitTest : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    std::iota(a_.begin(), a_.end(), 1.0f);
    std::iota(b_.begin(), b_.end(), 1000.0f);
    for (size_t i = 0; i < a_.size(); ++i) sum_[i] = a_[i] + b_[i];
  }
  const size_t count_ = GetParam();
  std::vector<float> a_ = std::vector<float>(count_ + 3);
  std::vector<float> b_ = std::vector<float>(count_ + 3);
  std::vector<float> sum_ = std::vector<float>(count_ + 3);
};

TEST_P(LimitTest, StreamAddAddsAndStaysInside) {
  for (const size_t offset : {0, 1, 2}) {
    std::vector<float> c(count_ + 8, -1);
    auto expected = c;
    std::copy(sum_.begin(), sum_.begin() + count_, expected.begin() + offset);
    StreamAdd(c.data() + offset, a_.data(), b_.data(), count_);
    EXPECT_EQ(c, expected);
  }
}

TEST_P(LimitTest, AddInPlaceWritesBoth) {
  auto expected_a = a_;
  auto expected_b = b_;
  std::copy(sum_.begin() + 1, sum_.begin() + 1 + count_, expected_a.begin() + 1);
  std::copy(sum_.begin() + 1, sum_.begin() + 1 + count_, expected_b.begin() + 1);
  AddInPlace(a_.data() + 1, b_.data() + 1, count_);
  EXPECT_EQ(a_, expected_a);
  EXPECT_EQ(b_, expected_b);
}

TEST_P(LimitTest, StreamCopyCopies) {
  std::vector<float> c(count_ + 3);
  StreamCopy(c.data(), a_.data(), c.size() * sizeof(float));
  EXPECT_EQ(c, a_);
}

INSTANTIATE_TEST_SUITE_P(Counts, LimitTest, testing::Values(0, 1, 5, 16, 63, 64, 1000, 20001));

}  // namespace
}  // namespace ronde::kernels
