// Every kernel against the scalar reference: type x operator x sources x counts x alignments x in
// place x destinations x stores x instruction sets, and every factor.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>

#include "core/kernels/reduce.h"
#include "tests/unit/kernels_reference.h"

namespace ronde::kernels {
namespace {

using reference::Bytes;
using reference::Factors;

constexpr size_t kGuard = 64;
constexpr char kGuardByte = 0x5a;

// `bytes` at any distance from an aligned address, with guards on both sides.
class Buffer {
 public:
  Buffer() : storage_(kCapacity + 4 * kGuard) {
    base_ = storage_.data() + (-reinterpret_cast<uintptr_t>(storage_.data()) % 64) + kGuard;
  }
  void Reset(size_t offset, size_t bytes) {
    begin_ = base_ + offset;
    bytes_ = bytes;
    std::memset(begin_ - kGuard / 2, kGuardByte, bytes + kGuard);
  }
  char* data() { return begin_; }
  bool GuardsHold() const {
    const auto held = [](char c) { return c == kGuardByte; };
    return std::all_of(begin_ - kGuard / 2, begin_, held) &&
           std::all_of(begin_ + bytes_, begin_ + bytes_ + kGuard / 2, held);
  }

 private:
  static constexpr size_t kCapacity = 4097 * 8 + 64;
  std::vector<char> storage_;
  char* base_;
  char* begin_ = nullptr;
  size_t bytes_ = 0;
};

struct Case {
  Isa isa;
  int num_srcs;
  int num_dsts;
  int in_place;  // how many of the destinations are sources
  size_t offset;
  size_t count;
  Store store;
  Factors factors;
};

std::string Describe(const Case& c) {
  return std::string(IsaName(c.isa)) + ", " + std::to_string(c.num_srcs) + " sources, " +
         std::to_string(c.num_dsts) + " destinations (" + std::to_string(c.in_place) +
         " in place), offset " + std::to_string(c.offset) + ", count " + std::to_string(c.count) +
         (c.store == Store::kStreaming ? ", streaming" : ", cached") + ", prescale " +
         std::to_string(c.factors.prescale) + ", postscale " + std::to_string(c.factors.postscale) +
         ", divisor " + std::to_string(c.factors.divisor);
}

using Param = std::tuple<DType, ReduceOp>;

class KernelsReduceTest : public testing::TestWithParam<Param> {
 protected:
  // Whether the kernel gives `expected` in every destination and touches nothing else.
  void Check(const Case& c, const std::vector<Bytes>& inputs, const Bytes& expected) {
    const size_t bytes = c.count * DTypeSize(dtype_);
    std::vector<const void*> srcs;
    for (int k = 0; k < c.num_srcs; ++k) {
      // Unlike alignments among the sources, too.
      buffers_[k].Reset(c.offset * static_cast<size_t>(k + 1) % 64, bytes);
      if (bytes > 0) std::memcpy(buffers_[k].data(), inputs[k].data(), bytes);
      srcs.push_back(buffers_[k].data());
    }
    std::vector<void*> dsts;
    std::vector<int> used;
    for (int d = 0; d < c.num_dsts; ++d) {
      // The last source first, so that a result written too early would be read again.
      const int buffer = d < c.in_place ? c.num_srcs - 1 - d : kMaxSources + d;
      if (d >= c.in_place) buffers_[buffer].Reset(c.offset * static_cast<size_t>(d) % 64, bytes);
      dsts.push_back(buffers_[buffer].data());
      used.push_back(buffer);
    }
    ReduceArgs args{};
    args.srcs = srcs.data();
    args.num_srcs = c.num_srcs;
    args.dsts = dsts.data();
    args.num_dsts = c.num_dsts;
    args.count = c.count;
    args.prescale = c.factors.prescale;
    args.postscale = c.factors.postscale;
    args.divisor = c.factors.divisor;
    args.store = c.store;
    FindReduce(c.isa, dtype_, op_)(args);
    for (const int buffer : used) {
      const size_t at =
          reference::FirstDifference(dtype_, buffers_[buffer].data(), expected.data(), c.count);
      ASSERT_EQ(at, c.count) << "element differs: " << Describe(c);
      ASSERT_TRUE(buffers_[buffer].GuardsHold()) << "wrote outside: " << Describe(c);
    }
  }

  std::vector<Bytes> Inputs(int num_srcs, size_t count) {
    std::vector<Bytes> inputs;
    for (int k = 0; k < num_srcs; ++k) {
      inputs.push_back(reference::RandomElements(dtype_, count, random_));
    }
    return inputs;
  }

  static constexpr int kMaxSources = 17;
  const DType dtype_ = std::get<0>(GetParam());
  const ReduceOp op_ = std::get<1>(GetParam());
  std::mt19937_64 random_{20240717};
  std::vector<Buffer> buffers_{kMaxSources + 3};
};

TEST_P(KernelsReduceTest, EveryShapeGivesTheReferencesBits) {
  const size_t counts[] = {0, 1, 3, 17, 64, 1000, 4097};
  const size_t size = DTypeSize(dtype_);
  for (const int num_srcs : {1, 2, 3, 4, 5, 7, 8, 9}) {
    const std::vector<Bytes> inputs = Inputs(num_srcs, 4097);
    Factors factors;
    factors.divisor = op_ == ReduceOp::kAverage ? num_srcs : 1;
    const Bytes expected = reference::Reduce(dtype_, op_, inputs, 4097, factors);
    for (const Isa isa : reference::SupportedIsas()) {
      for (const size_t count : counts) {
        for (const size_t offset : {size_t{0}, size, size_t{16}, size_t{1}}) {
          for (const int num_dsts : {1, 2, 3}) {
            for (int in_place = 0; in_place <= std::min(num_dsts, num_srcs); ++in_place) {
              for (const Store store : {Store::kCached, Store::kStreaming}) {
                Check({isa, num_srcs, num_dsts, in_place, offset, count, store, factors}, inputs,
                      expected);
                if (HasFatalFailure()) return;
              }
            }
          }
        }
      }
    }
  }
}

TEST_P(KernelsReduceTest, EveryFactorGivesTheReferencesBits) {
  constexpr size_t kCount = 601;
  const Factors factors[] = {{0.5, 1, 1},      {1, 0.5, 1},     {3, 0.1, 1},      {1.0 / 3, 7, 3},
                             {-1.5, 1, 4},     {1, -0.75, 7},   {0, 1, 1},        {1, 0, 2},
                             {1e30, 1e-30, 5}, {1e-42, 1e3, 8}, {1e300, 1e10, 1}, {1, 1, 1000003}};
  for (const int num_srcs : {1, 2, 3, 4, 5, 8, 17}) {
    const std::vector<Bytes> inputs = Inputs(num_srcs, kCount);
    for (const Factors& f : factors) {
      const Bytes expected = reference::Reduce(dtype_, op_, inputs, kCount, f);
      for (const Isa isa : reference::SupportedIsas()) {
        for (const Store store : {Store::kCached, Store::kStreaming}) {
          Check({isa, num_srcs, 2, 1, 4, kCount, store, f}, inputs, expected);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Every pair but the average of bool, which is undefined (kernels_contract_test.cc).
std::vector<Param> DefinedPairs() {
  std::vector<Param> pairs;
  for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
    for (int op = 0; op < kNumReduceOps; ++op) {
      const Param pair(static_cast<DType>(dtype), static_cast<ReduceOp>(op));
      if (pair != Param(DType::kBool, ReduceOp::kAverage)) pairs.push_back(pair);
    }
  }
  return pairs;
}

INSTANTIATE_TEST_SUITE_P(All, KernelsReduceTest, testing::ValuesIn(DefinedPairs()),
                         [](const auto& param_info) {
                           return std::string(DTypeName(std::get<0>(param_info.param))) + "_" +
                                  std::string(ReduceOpName(std::get<1>(param_info.param)));
                         });

}  // namespace
}  // namespace ronde::kernels
