// The table of reduction kernels: format x operator x number of sources (see variant.h for how this
// is compiled).
#pragma once

#include <type_traits>

#include "core/kernels/formats.h"
#include "core/kernels/limit_impl.h"
#include "core/kernels/reduce.h"
#include "core/kernels/span.h"
#include "core/kernels/tree.h"
#include "core/kernels/variant.h"

namespace ronde::kernels {
namespace {

template <class Op, int N, class Format>
inline void ReduceFrom(const Format& format, const ReduceArgs& args) {
  const Sources<N> srcs(args);
  const Destinations dsts{args.dsts, args.num_dsts};
  const size_t bytes = args.count * sizeof(typename Format::Stored);
  if (args.store == Store::kStreaming) {
    Stream<Op>(format, srcs, dsts, bytes);
  } else {
    Span<Op>(format, srcs, dsts, 0, 0, bytes);
  }
}

template <class Op, class Format>
inline void ReduceWith(const Format& format, const ReduceArgs& args) {
  if constexpr (kFast<Op, Format>) {
    if (args.num_srcs == 2) return ReduceFrom<Op, 2>(format, args);
  }
  if constexpr (kFastest<Op, Format>) {
    if (args.num_srcs == 3) return ReduceFrom<Op, 3>(format, args);
    if (args.num_srcs == 4) return ReduceFrom<Op, 4>(format, args);
    if (args.num_srcs == 8) return ReduceFrom<Op, 8>(format, args);
  }
  return ReduceFrom<Op, 0>(format, args);
}

template <class Plain, class Scaled, class Op, bool kAverage>
[[gnu::noinline]] void Run(const ReduceArgs& args) {
  const int divisor = kAverage ? args.divisor : 1;
  if (divisor == 1 && args.prescale == 1.0 && args.postscale == 1.0) {
    ReduceWith<Op>(Plain(args, divisor), args);
  } else {
    ReduceWith<Op>(Scaled(args, divisor), args);
  }
}

#if defined(__x86_64__)

// Rounding to nearest, denormals kept, exceptions masked: what every bit above the sticky flags
// says when a process starts.
constexpr unsigned kDefaultControl = 0x1f80;
constexpr unsigned kStickyFlags = 0x3f;

[[gnu::noinline, gnu::cold]] inline void RunUnderDefaultControl(ReduceFn run,
                                                                const ReduceArgs& args,
                                                                unsigned callers) {
  _mm_setcsr(kDefaultControl);
  run(args);
  _mm_setcsr(callers);
}

template <ReduceFn kRun>
void UnderDefaultControl(const ReduceArgs& args) {
  const unsigned control = _mm_getcsr();
  if ((control & ~kStickyFlags) != kDefaultControl) [[unlikely]] {
    RunUnderDefaultControl(kRun, args, control);
  } else {
    kRun(args);
  }
}

#else

template <ReduceFn kRun>
void UnderDefaultControl(const ReduceArgs& args) {
  kRun(args);
}

#endif

template <class Plain, class Scaled, class Op, bool kAverage = false>
constexpr ReduceFn kKernel = UnderDefaultControl<Run<Plain, Scaled, Op, kAverage>>;

template <class Raw>
ReduceFn FindFloat(ReduceOp op) {
  using Plain = FloatPlain<Raw>;
  using Scaled = FloatScaled<Raw>;
  switch (op) {
    case ReduceOp::kSum:
      return kKernel<Plain, Scaled, Sum>;
    case ReduceOp::kAverage:
      return kKernel<Plain, Scaled, Sum, true>;
    case ReduceOp::kMin:
      return kKernel<Plain, Scaled, Min>;
    case ReduceOp::kMax:
      return kKernel<Plain, Scaled, Max>;
    case ReduceOp::kProduct:
      return kKernel<Plain, Scaled, Product>;
  }
  return nullptr;
}

// Sums for averages are computed in Wide.
template <class T, class Wide>
ReduceFn FindInt(ReduceOp op) {
  using Average = IntAverage<T, Wide>;
  using U = std::make_unsigned_t<T>;
  switch (op) {
    case ReduceOp::kSum:
      return kKernel<IntPlain<T, U>, IntScaled<T, U>, Sum>;
    case ReduceOp::kAverage:
      return kKernel<Average, Average, Sum, true>;
    case ReduceOp::kMin:
      return kKernel<IntPlain<T, T>, IntScaled<T, T>, Min>;
    case ReduceOp::kMax:
      return kKernel<IntPlain<T, T>, IntScaled<T, T>, Max>;
    case ReduceOp::kProduct:
      return kKernel<IntPlain<T, U>, IntScaled<T, U>, Product>;
  }
  return nullptr;
}

ReduceFn FindBool(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
      return kKernel<BoolPlain, BoolScaled, Or>;
    case ReduceOp::kAverage:
      return nullptr;
    case ReduceOp::kMin:
    case ReduceOp::kProduct:
      return kKernel<BoolPlain, BoolScaled, And>;
  }
  return nullptr;
}

ReduceFn Find(DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::kBool:
      return FindBool(op);
    case DType::kUint8:
      return FindInt<uint8_t, int64_t>(op);
    case DType::kInt8:
      return FindInt<int8_t, int64_t>(op);
    case DType::kInt16:
      return FindInt<int16_t, int64_t>(op);
    case DType::kInt32:
      return FindInt<int32_t, int64_t>(op);
    case DType::kInt64:
      return FindInt<int64_t, __int128>(op);
    case DType::kFloat16:
      return FindFloat<Float16>(op);
    case DType::kBfloat16:
      return FindFloat<Bfloat16>(op);
    case DType::kFloat32:
      return FindFloat<Float32>(op);
    case DType::kFloat64:
      return FindFloat<Float64>(op);
  }
  return nullptr;
}

constexpr Variant kThisVariant{Find, StreamCopyFenced, StreamAddFenced, AddBoth};

}  // namespace
}  // namespace ronde::kernels
