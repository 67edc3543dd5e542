// Descriptions: there and back, and never out of bounds, whatever the other rank wrote.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/control/board.h"
#include "core/control/description.h"
#include "core/control/messages.pb.h"

namespace ronde {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

// A descriptor that ends where memory ends: reading past it is a fault.
class Guarded {
 public:
  Guarded() {
    memory_ =
        static_cast<std::byte*>(mmap(nullptr, kDescriptorBytes + kPage, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(memory_, MAP_FAILED);
    EXPECT_EQ(mprotect(memory_ + kDescriptorBytes, kPage, PROT_NONE), 0);
  }
  ~Guarded() { munmap(memory_, kDescriptorBytes + kPage); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  std::byte* data() { return memory_; }

 private:
  static constexpr size_t kPage = 4096;
  std::byte* memory_ = nullptr;
};

std::vector<Tensor> Tensors(size_t count) {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < count; ++i) {
    std::vector<int64_t> dims(i % 9);
    for (size_t d = 0; d < dims.size(); ++d) dims[d] = static_cast<int64_t>(i + d);
    const Shape shape = Shape::Of(dims);
    tensors.push_back(
        {TensorView{nullptr, shape.count(), static_cast<DType>(i % kNumDTypes), {}}, shape});
  }
  return tensors;
}

void ExpectRoundTrip(size_t num_tensors, size_t num_splits, const std::string& invalid) {
  const std::vector<Tensor> tensors = Tensors(num_tensors);
  const std::vector<int64_t> splits(num_splits, 5);
  const OpView view{OpKind::kAlltoall, ReduceOp::kMax, 3,      0.5,    -2.0,
                    tensors,           num_tensors,    splits, invalid};
  Guarded memory;
  EncodeDescription(view, memory.data());
  const Description got = DecodeDescription(memory.data());
  EXPECT_EQ(got.kind, view.kind);
  EXPECT_EQ(got.op, view.op);
  EXPECT_EQ(got.root, 3);
  EXPECT_EQ(got.prescale, 0.5);
  EXPECT_EQ(got.postscale, -2.0);
  EXPECT_EQ(got.group_size, num_tensors);
  ASSERT_EQ(got.tensors.size(), std::min(num_tensors, kMaxDescribedTensors));
  for (size_t i = 0; i < got.tensors.size(); ++i) {
    EXPECT_EQ(got.tensors[i].dtype, tensors[i].view.dtype);
    EXPECT_EQ(got.tensors[i].shape, tensors[i].shape);
  }
  EXPECT_THAT(got.splits, ElementsAreArray(splits));
  EXPECT_TRUE(invalid.starts_with(got.invalid));
  EXPECT_EQ(got.invalid.empty(), invalid.empty());
}

TEST(DescriptionTest, RoundTrip) {
  for (const size_t tensors : {size_t{0}, size_t{1}, kMaxDescribedTensors, size_t{1000}}) {
    for (const size_t splits : {size_t{0}, size_t{3}, static_cast<size_t>(kMaxLocalRanks)}) {
      ExpectRoundTrip(tensors, splits, "");
      ExpectRoundTrip(tensors, splits, "because");
      ExpectRoundTrip(tensors, splits, std::string(5000, 'x'));
    }
  }
}

TEST(DescriptionTest, GarbageIsReadWithinBounds) {
  std::mt19937_64 random(3);
  Guarded memory;
  for (int round = 0; round < 20'000; ++round) {
    for (size_t i = 0; i < kDescriptorBytes; i += sizeof(uint64_t)) {
      const uint64_t word = round % 7 == 0 ? ~uint64_t{0} : random();
      std::memcpy(memory.data() + i, &word, sizeof(word));
      if (round % 50 != 0 && i > 256) break;  // the head decides what is read; the rest stays
    }
    const Description got = DecodeDescription(memory.data());
    EXPECT_LE(got.tensors.size(), kMaxDescribedTensors);
    EXPECT_LE(got.splits.size(), static_cast<size_t>(kMaxLocalRanks));
    (void)EncodedShape(memory.data(), 0);
    (void)EncodedSplit(memory.data(), kMaxLocalRanks - 1);
    // Printing it must be possible as well.
    const Description other = got;
    (void)CompareDescriptions("x", std::vector<Description>{got, other, Description()}).ToString();
  }
}

TEST(DescriptionTest, FromTheWireNothingOutOfRange) {
  wire::Descriptor wire;
  EXPECT_TRUE(FromWire(wire).ok());
  wire.set_op(kNumReduceOps);
  EXPECT_EQ(FromWire(wire).status().code(), Code::kInternal);
  wire.set_op(0);
  wire.add_tensors()->set_dtype(kNumDTypes);
  EXPECT_EQ(FromWire(wire).status().code(), Code::kInternal);
  wire.mutable_tensors(0)->set_dtype(0);
  for (int d = 0; d <= Shape::kMaxDims; ++d) wire.mutable_tensors(0)->add_dims(1);
  EXPECT_EQ(FromWire(wire).status().code(), Code::kInternal);
}

TEST(DescriptionTest, SignaturesTellWhatComparisonTells) {
  const std::vector<Tensor> base = Tensors(3);
  const auto view = [&](OpKind kind) {
    return OpView{kind, ReduceOp::kSum, 0, 1.0, 1.0, base, base.size(), {}, {}};
  };
  const uint64_t sum = Signature(view(OpKind::kAllreduce));
  EXPECT_NE(sum, 0u);
  EXPECT_EQ(Signature(view(OpKind::kAllreduce)), sum);
  OpView other = view(OpKind::kAllreduce);
  other.op = ReduceOp::kMax;
  EXPECT_NE(Signature(other), sum);
  other = view(OpKind::kAllreduce);
  other.postscale = 2;
  EXPECT_NE(Signature(other), sum);
  other = view(OpKind::kAllreduce);
  other.group_size = 4;
  EXPECT_NE(Signature(other), sum);
  other.invalid = "why";
  EXPECT_EQ(Signature(other), 0u);
  EXPECT_NE(Signature(view(OpKind::kBroadcast)), sum);
  other = view(OpKind::kBroadcast);
  other.root = 1;
  EXPECT_NE(Signature(other), Signature(view(OpKind::kBroadcast)));
  // The first dimension of a gather is the rank's own.
  std::vector<Tensor> rows = Tensors(3);
  rows[2].shape.dims[0] += 5;
  other = view(OpKind::kAllgather);
  other.tensors = rows;
  EXPECT_EQ(Signature(other), Signature(view(OpKind::kAllgather)));
  other.kind = OpKind::kReducescatter;
  EXPECT_NE(Signature(other), Signature(view(OpKind::kReducescatter)));
}

TEST(DescriptionTest, RanksAreListedInRuns) {
  EXPECT_EQ(RankList(std::vector<int>{3}), "rank 3");
  EXPECT_EQ(RankList(std::vector<int>{0, 1}), "ranks 0, 1");
  EXPECT_EQ(RankList(std::vector<int>{0, 1, 2, 5, 7, 8}), "ranks 0-2, 5, 7, 8");
}

}  // namespace
}  // namespace ronde
