#include "tuning/bench/predictable.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

namespace ronde::bench {
namespace {

// Every whole number from 0 to this is a value of the type.
int64_t LargestExact(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return 1;
    case DType::kUint8:
      return 255;
    case DType::kInt8:
      return 127;
    case DType::kInt16:
      return 32767;
    case DType::kInt32:
    case DType::kInt64:
      return int64_t{1} << 30;
    case DType::kFloat16:
      return 2048;
    case DType::kBfloat16:
      return 256;
    case DType::kFloat32:
      return int64_t{1} << 24;
    case DType::kFloat64:
      return int64_t{1} << 50;
  }
  return 1;
}

// Mixes the bits of x thoroughly (the finalizer of splitmix64).
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

template <typename T>
void Store(T value, void* to) {
  std::memcpy(to, &value, sizeof value);
}

// A whole number of at most 11 bits as an IEEE half.
uint16_t HalfBits(int64_t value) {
  if (value == 0) return 0;
  const auto magnitude = static_cast<uint64_t>(std::llabs(value));
  const int exponent = std::bit_width(magnitude) - 1;
  const uint64_t fraction = (magnitude << 10 >> exponent) & 0x3ff;
  const uint64_t sign = value < 0 ? 0x8000 : 0;
  return static_cast<uint16_t>(sign | static_cast<uint64_t>(exponent + 15) << 10 | fraction);
}

}  // namespace

void StoreInteger(DType dtype, int64_t value, void* to) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUint8:
      Store(static_cast<uint8_t>(value), to);
      break;
    case DType::kInt8:
      Store(static_cast<int8_t>(value), to);
      break;
    case DType::kInt16:
      Store(static_cast<int16_t>(value), to);
      break;
    case DType::kInt32:
      Store(static_cast<int32_t>(value), to);
      break;
    case DType::kInt64:
      Store(value, to);
      break;
    case DType::kFloat16:
      Store(HalfBits(value), to);
      break;
    case DType::kBfloat16:
      Store(static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16), to);
      break;
    case DType::kFloat32:
      Store(static_cast<float>(value), to);
      break;
    case DType::kFloat64:
      Store(static_cast<double>(value), to);
      break;
  }
}

PredictableData::PredictableData(OpKind kind, DType dtype, ReduceOp op, int ranks, uint64_t seed)
    : kind_(kind), dtype_(dtype), op_(op), ranks_(ranks), seed_(seed) {
  constexpr int64_t kEnough = 1000;  // more variety would not find more errors
  const int64_t largest = LargestExact(dtype);
  contributors_ = ranks;
  bound_ = std::min(largest, kEnough);
  const bool reduces = kind == OpKind::kAllreduce || kind == OpKind::kReducescatter;
  if (!reduces || dtype == DType::kBool) return;
  // The sum of all inputs, each a multiple of the ranks for an average, may not exceed `largest`.
  const int64_t unit = op == ReduceOp::kAverage ? ranks : 1;
  if (op == ReduceOp::kSum || op == ReduceOp::kAverage) {
    contributors_ = static_cast<int>(std::min<int64_t>(ranks, largest / unit));
    bound_ = std::min(kEnough, largest / unit / std::max(contributors_, 1));
  }
}

int64_t PredictableData::Input(int rank, int64_t i) const {
  const auto index = static_cast<uint64_t>(i);
  const uint64_t own = Mix(seed_ ^ Mix(index * 65536 + static_cast<uint64_t>(rank)));
  const int64_t value = static_cast<int64_t>(own % static_cast<uint64_t>(bound_ + 1));
  const bool reduces = kind_ == OpKind::kAllreduce || kind_ == OpKind::kReducescatter;
  if (!reduces || dtype_ == DType::kBool) return value;
  switch (op_) {
    case ReduceOp::kSum:
      return rank < contributors_ ? value : 0;
    case ReduceOp::kAverage:
      return rank < contributors_ ? value * ranks_ : 0;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return value;
    case ReduceOp::kProduct: {
      // Two ranks (or one, twice drawn) have a 2: powers of two are exact everywhere.
      const uint64_t shared = Mix(seed_ + index);
      const auto n = static_cast<uint64_t>(ranks_);
      const auto r = static_cast<uint64_t>(rank);
      return shared % n == r || (shared >> 32) % n == r ? 2 : 1;
    }
  }
  return 0;
}

int64_t PredictableData::Reduced(int64_t i) const {
  int64_t result = Input(0, i);
  for (int rank = 1; rank < ranks_; ++rank) {
    const int64_t value = Input(rank, i);
    switch (op_) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage:
        // Of bool: logical or.
        result = dtype_ == DType::kBool ? (result | value) : result + value;
        break;
      case ReduceOp::kMin:
        result = std::min(result, value);
        break;
      case ReduceOp::kMax:
        result = std::max(result, value);
        break;
      case ReduceOp::kProduct:
        result *= value;
        break;
    }
  }
  return op_ == ReduceOp::kAverage ? result / ranks_ : result;
}

int64_t PredictableData::Expected(int rank, int64_t i, int64_t input_count) const {
  switch (kind_) {
    case OpKind::kAllreduce:
      return Reduced(i);
    case OpKind::kReducescatter:
      return Reduced(rank * (input_count / ranks_) + i);
    case OpKind::kBroadcast:
      return Input(0, i);
    case OpKind::kAllgather:
      return Input(static_cast<int>(i / input_count), i % input_count);
    case OpKind::kAlltoall: {
      const int64_t part = input_count / ranks_;
      return Input(static_cast<int>(i / part), rank * part + i % part);
    }
    case OpKind::kBarrier:
      break;
  }
  return 0;
}

void PredictableData::FillInput(int rank, void* data, int64_t count) const {
  auto* to = static_cast<char*>(data);
  const size_t size = DTypeSize(dtype_);
  for (int64_t i = 0; i < count; ++i, to += size) StoreInteger(dtype_, Input(rank, i), to);
}

int64_t PredictableData::CountWrong(int rank, const void* data, int64_t count,
                                    int64_t input_count) const {
  const auto* from = static_cast<const char*>(data);
  const size_t size = DTypeSize(dtype_);
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; ++i, from += size) {
    char expected[8];
    StoreInteger(dtype_, Expected(rank, i, input_count), expected);
    if (std::memcmp(from, expected, size) != 0) ++wrong;
  }
  return wrong;
}

}  // namespace ronde::bench
