// The reduction kernels, generic over format and operator (see variant.h for how this is compiled).
#pragma once

#include "core/kernels/formats.h"
#include "core/kernels/reduce.h"
#include "core/kernels/variant.h"
#include "core/kernels/vector.h"

namespace ronde::kernels {
namespace {

struct Sum {
  template <class V>
  static V Apply(V a, V b) {
    return static_cast<V>(a + b);
  }
};

struct Product {
  template <class V>
  static V Apply(V a, V b) {
    // A scalar uint16_t would be promoted to int, and the product overflow.
    if constexpr (std::is_same_v<V, uint16_t>) return static_cast<V>(uint32_t{a} * b);
    return static_cast<V>(a * b);
  }
};

// Ties go to `a`, the lower source index; a NaN wins over everything.
struct Min {
  template <class V>
  static V Apply(V a, V b) {
    return (b < a) | (b != b) ? b : a;
  }
};

struct Max {
  template <class V>
  static V Apply(V a, V b) {
    return (b > a) | (b != b) ? b : a;
  }
};

struct And {
  template <class V>
  static V Apply(V a, V b) {
    return static_cast<V>(a & b);
  }
};

struct Or {
  template <class V>
  static V Apply(V a, V b) {
    return static_cast<V>(a | b);
  }
};

constexpr int PowerOfTwoBelow(int n) {
  int power = 1;
  while (power * 2 < n) power *= 2;
  return power;
}

// N sources, known at compile time; their pointers stay in registers.
template <int N>
class Sources {
 public:
  explicit Sources(const ReduceArgs& args) {
    for (int k = 0; k < N; ++k) p_[k] = static_cast<const char*>(args.srcs[k]);
  }

  // x[u] = the tree over the vectors at byte `at` + u * (bytes of a vector), for u < U.
  template <class Op, int L, int U, class Format>
  [[gnu::always_inline]] void Reduce(const Format& format, size_t at,
                                     Vec<typename Format::Acc, L> (&x)[U]) const {
    constexpr size_t kBytes = L * sizeof(typename Format::Stored);
    for (int u = 0; u < U; ++u) x[u] = Tree<Op, L, 0, N>(format, at + u * kBytes);
  }

 private:
  template <class Op, int L, int kBegin, int kEnd, class Format>
  [[gnu::always_inline]] Vec<typename Format::Acc, L> Tree(const Format& format, size_t at) const {
    if constexpr (kEnd - kBegin == 1) {
      return format.template Widen<L>(LoadVec<Vec<typename Format::Stored, L>>(p_[kBegin] + at));
    } else {
      constexpr int kMiddle = kBegin + PowerOfTwoBelow(kEnd - kBegin);
      return Op::Apply(Tree<Op, L, kBegin, kMiddle>(format, at),
                       Tree<Op, L, kMiddle, kEnd>(format, at));
    }
  }

  const char* p_[N];
};

// Any number of sources.
template <>
class Sources<0> {
 public:
  explicit Sources(const ReduceArgs& args) : p_(args.srcs), n_(args.num_srcs) {}

  template <class Op, int L, int U, class Format>
  [[gnu::always_inline]] void Reduce(const Format& format, size_t at,
                                     Vec<typename Format::Acc, L> (&x)[U]) const {
    using Acc = Vec<typename Format::Acc, L>;
    using Stored = Vec<typename Format::Stored, L>;
    // Finished subtrees, largest first: their sizes are the binary digits of k.
    Acc done[kMaxDepth][U];
    int depth = 0;
    for (int k = 0; k < n_; ++k) {
      const char* source = static_cast<const char*>(p_[k]) + at;
      for (int u = 0; u < U; ++u) {
        done[depth][u] = format.template Widen<L>(LoadVec<Stored>(source + u * sizeof(Stored)));
      }
      for (int digits = k; digits & 1; digits >>= 1) Merge<Op>(done, &depth);
      ++depth;
    }
    --depth;
    while (depth > 0) Merge<Op>(done, &depth);
    for (int u = 0; u < U; ++u) x[u] = done[0][u];
  }

 private:
  static constexpr int kMaxDepth = 32;  // bits of an int

  template <class Op, class Acc, int U>
  [[gnu::always_inline]] static void Merge(Acc (*done)[U], int* depth) {
    --*depth;
    for (int u = 0; u < U; ++u) done[*depth][u] = Op::Apply(done[*depth][u], done[*depth + 1][u]);
  }

  const void* const* p_;
  int n_;
};

struct Destinations {
  void* const* p;
  int n;
};

// Reduces as many whole groups of U vectors as `bytes` hold, from byte `src_at` of the sources to
// byte `dst_at` of the destinations; returns their bytes. A group is read from every source before
// any of it is written: destinations may be sources.
template <bool kStream, class Op, int L, int U, class Format, class Srcs>
[[gnu::always_inline]] inline size_t Groups(const Format& format, const Srcs& srcs,
                                            Destinations dsts, size_t src_at, size_t dst_at,
                                            size_t bytes) {
  using Stored = Vec<typename Format::Stored, L>;
  constexpr size_t kGroup = U * sizeof(Stored);
  size_t at = 0;
  for (; at + kGroup <= bytes; at += kGroup) {
    Vec<typename Format::Acc, L> x[U];
    srcs.template Reduce<Op, L, U>(format, src_at + at, x);
    Stored out[U];
    for (int u = 0; u < U; ++u) out[u] = format.template Narrow<L>(x[u]);
    for (int d = 0; d < dsts.n; ++d) {
      char* p = static_cast<char*>(dsts.p[d]) + dst_at + at;
      for (int u = 0; u < U; ++u) StoreVec<kStream>(p + u * sizeof(Stored), out[u]);
    }
  }
  return at;
}

// Reduces `bytes` with ordinary stores, by vectors of four widths, so that few bytes cost few
// steps.
template <class Op, class Format, class Srcs>
[[gnu::noinline]] void Span(const Format& format, const Srcs& srcs, Destinations dsts,
                            size_t src_at, size_t dst_at, size_t bytes) {
  constexpr int kWide = Format::kLanes;
  constexpr int kNarrow = 16 / sizeof(typename Format::Acc);
  size_t at = 0;
  if constexpr (kWide > 1) {
    at += Groups<false, Op, kWide, 4>(format, srcs, dsts, src_at, dst_at, bytes);
    at += Groups<false, Op, kWide, 1>(format, srcs, dsts, src_at + at, dst_at + at, bytes - at);
  }
  if constexpr (kWide > kNarrow && kNarrow > 1) {
    at += Groups<false, Op, kNarrow, 1>(format, srcs, dsts, src_at + at, dst_at + at, bytes - at);
  }
  Groups<false, Op, 1, 1>(format, srcs, dsts, src_at + at, dst_at + at, bytes - at);
}

// Around the caches, by way of a buffer that stays in the first one: so the destinations' lines
// need not coincide, and the code is that of the ordinary stores.
template <class Op, class Format, class Srcs>
[[gnu::noinline]] void StreamSpan(const Format& format, const Srcs& srcs, Destinations dsts,
                                  size_t bytes) {
  constexpr size_t kBlock = 8192;
  alignas(kLineBytes) char buffer[kBlock];
  void* buffers[] = {buffer};
  for (size_t at = 0; at < bytes; at += kBlock) {
    const size_t block = bytes - at < kBlock ? bytes - at : kBlock;
    Span<Op>(format, srcs, Destinations{buffers, 1}, at, 0, block);
    for (int d = 0; d < dsts.n; ++d) StreamBytes(static_cast<char*>(dsts.p[d]) + at, buffer, block);
  }
  FenceStreams();
}

template <class Op, int N, class Format>
inline void ReduceFrom(const Format& format, const ReduceArgs& args) {
  const Sources<N> srcs(args);
  const Destinations dsts{args.dsts, args.num_dsts};
  const size_t bytes = args.count * sizeof(typename Format::Stored);
  if (args.store == Store::kStreaming) {
    StreamSpan<Op>(format, srcs, dsts, bytes);
  } else {
    Span<Op>(format, srcs, dsts, 0, 0, bytes);
  }
}

template <class Op, class Format>
inline void ReduceWith(const Format& format, const ReduceArgs& args) {
  if constexpr (Format::kUnroll >= 2) {
    if (args.num_srcs == 2) return ReduceFrom<Op, 2>(format, args);
  }
  if constexpr (Format::kUnroll >= 8 && std::is_same_v<Op, Sum>) {
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

template <class T, class Average>
ReduceFn FindInt(ReduceOp op) {
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
      return FindInt<uint8_t, IntAverage<uint8_t>>(op);
    case DType::kInt8:
      return FindInt<int8_t, IntAverage<int8_t>>(op);
    case DType::kInt16:
      return FindInt<int16_t, IntAverage<int16_t>>(op);
    case DType::kInt32:
      return FindInt<int32_t, IntAverage<int32_t>>(op);
    case DType::kInt64:
      return FindInt<int64_t, Int64Average>(op);
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

// The floor's kernels (limit.h), beside the real ones so that they get the same vectors.
void StreamCopyFenced(void* dst, const void* src, size_t bytes) {
  StreamBytes(static_cast<char*>(dst), static_cast<const char*>(src), bytes);
  FenceStreams();
}

using Floats = Vec<float, kVectorBytes / 4>;

void StreamAddFenced(float* c, const float* a, const float* b, size_t count) {
  size_t i = 0;
  for (; i < count && BytesToLine(c + i) % kVectorBytes != 0; ++i) c[i] = a[i] + b[i];
  for (; i + kVectorBytes / 4 <= count; i += kVectorBytes / 4) {
    const Floats sum = LoadVec<Floats>(reinterpret_cast<const char*>(a + i)) +
                       LoadVec<Floats>(reinterpret_cast<const char*>(b + i));
    StoreVec<true>(reinterpret_cast<char*>(c + i), sum);
  }
  for (; i < count; ++i) c[i] = a[i] + b[i];
  FenceStreams();
}

void AddBoth(float* a, float* b, size_t count) {
  size_t i = 0;
  for (; i + kVectorBytes / 4 <= count; i += kVectorBytes / 4) {
    const Floats sum = LoadVec<Floats>(reinterpret_cast<const char*>(a + i)) +
                       LoadVec<Floats>(reinterpret_cast<const char*>(b + i));
    StoreVec<false>(reinterpret_cast<char*>(a + i), sum);
    StoreVec<false>(reinterpret_cast<char*>(b + i), sum);
  }
  for (; i < count; ++i) a[i] = b[i] = a[i] + b[i];
}

constexpr Variant kThisVariant{Find, StreamCopyFenced, StreamAddFenced, AddBoth};

}  // namespace
}  // namespace ronde::kernels
