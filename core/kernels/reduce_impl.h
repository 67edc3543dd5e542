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

// How much code a kernel is worth: the sums (and averages) that training consists of get more
// source counts of their own and the straightest stores, rare ones are short.
template <class Op, class Format>
constexpr bool kFastest = Format::kFloating&& std::is_same_v<Op, Sum>;
template <class Op, class Format>
constexpr bool kFast = kFastest<Op, Format> || !Format::kScaled;

// The canonical tree over the vectors that p[0] .. p[n-1] hold at byte `at`, n = kEnd - kBegin.
template <class Op, int L, int kBegin, int kEnd, class Format, class Pointer>
[[gnu::always_inline]] inline Vec<typename Format::Acc, L> Tree(const Format& format,
                                                                const Pointer* p, size_t at) {
  if constexpr (kEnd - kBegin == 1) {
    const char* source = static_cast<const char*>(p[kBegin]) + at;
    return format.template Widen<L>(LoadVec<Vec<typename Format::Stored, L>>(source));
  } else {
    constexpr int kMiddle = kBegin + PowerOfTwoBelow(kEnd - kBegin);
    return Op::Apply(Tree<Op, L, kBegin, kMiddle>(format, p, at),
                     Tree<Op, L, kMiddle, kEnd>(format, p, at));
  }
}

// N sources, known at compile time; their pointers stay in registers.
template <int N>
class Sources {
 public:
  static constexpr bool kFixed = true;

  explicit Sources(const ReduceArgs& args) {
    for (int k = 0; k < N; ++k) p_[k] = static_cast<const char*>(args.srcs[k]);
  }

  // x[u] = the tree over the vectors at byte `at` + u * (bytes of a vector), for u < U.
  template <class Op, int L, int U, class Format>
  [[gnu::always_inline]] void Reduce(const Format& format, size_t at,
                                     Vec<typename Format::Acc, L> (&x)[U]) const {
    constexpr size_t kBytes = L * sizeof(typename Format::Stored);
    for (int u = 0; u < U; ++u) x[u] = Tree<Op, L, 0, N>(format, p_, at + u * kBytes);
  }

 private:
  const char* p_[N];
};

// Any number of sources.
template <>
class Sources<0> {
 public:
  static constexpr bool kFixed = false;

  explicit Sources(const ReduceArgs& args) : p_(args.srcs), n_(args.num_srcs) {}

  template <class Op, int L, int U, class Format>
  [[gnu::always_inline]] void Reduce(const Format& format, size_t at,
                                     Vec<typename Format::Acc, L> (&x)[U]) const {
    // Finished subtrees, largest first: their sizes are the binary digits of the sources done.
    Vec<typename Format::Acc, L> done[kMaxDepth][U];
    int depth = 0;
    int k = 0;
    for (; k + 4 <= n_; k += 4) {
      Push<Op, L, 4>(format, k, at, done[depth]);
      for (int digits = k / 4; digits & 1; digits >>= 1) Merge<Op>(done, --depth);
      ++depth;
    }
    if (n_ & 2) Push<Op, L, 2>(format, k, at, done[depth++]);
    if (n_ & 1) Push<Op, L, 1>(format, n_ - 1, at, done[depth++]);
    while (--depth > 0) Merge<Op>(done, depth - 1);
    for (int u = 0; u < U; ++u) x[u] = done[0][u];
  }

 private:
  static constexpr int kMaxDepth = 32;  // bits of an int

  // out = the tree over the kSize sources from k.
  template <class Op, int L, int kSize, int U, class Format>
  [[gnu::always_inline]] void Push(const Format& format, int k, size_t at,
                                   Vec<typename Format::Acc, L> (&out)[U]) const {
    constexpr size_t kBytes = L * sizeof(typename Format::Stored);
    for (int u = 0; u < U; ++u) out[u] = Tree<Op, L, 0, kSize>(format, p_ + k, at + u * kBytes);
  }

  // done[i] = done[i] with its right neighbour.
  template <class Op, class Acc, int U>
  [[gnu::always_inline]] static void Merge(Acc (*done)[U], int i) {
    for (int u = 0; u < U; ++u) done[i][u] = Op::Apply(done[i][u], done[i + 1][u]);
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
    if constexpr (kFast<Op, Format>) {
      at += Groups<false, Op, kWide, 4>(format, srcs, dsts, src_at, dst_at, bytes);
    }
    at += Groups<false, Op, kWide, 1>(format, srcs, dsts, src_at + at, dst_at + at, bytes - at);
  }
  if constexpr (kWide > kNarrow && kNarrow > 1) {
    at += Groups<false, Op, kNarrow, 1>(format, srcs, dsts, src_at + at, dst_at + at, bytes - at);
  }
  Groups<false, Op, 1, 1>(format, srcs, dsts, src_at + at, dst_at + at, bytes - at);
}

// Whether all destinations reach a line of the cache after the same whole number of elements.
inline bool AlignedAlike(Destinations dsts, size_t element_bytes) {
  const size_t head = BytesToLine(dsts.p[0]);
  for (int d = 1; d < dsts.n; ++d) {
    if (BytesToLine(dsts.p[d]) != head) return false;
  }
  return head % element_bytes == 0;
}

// Around the caches, straight from the registers. REQUIRES: AlignedAlike.
template <class Op, class Format, class Srcs>
[[gnu::noinline]] void StreamAligned(const Format& format, const Srcs& srcs, Destinations dsts,
                                     size_t bytes) {
  constexpr int kLanes = Format::kLanes;
  size_t at = BytesToLine(dsts.p[0]);
  if (at > bytes) at = bytes;
  if (at > 0) Span<Op>(format, srcs, dsts, 0, 0, at);
  at += Groups<true, Op, kLanes, 4>(format, srcs, dsts, at, at, bytes - at);
  if (at < bytes) Span<Op>(format, srcs, dsts, at, at, bytes - at);
}

// A reduction without its types.
struct AnySpan {
  void (*span)(const void* format, const void* srcs, Destinations dsts, size_t src_at,
               size_t bytes);  // to the destinations' begin
  const void* format;
  const void* srcs;
};

template <class Op, class Format, class Srcs>
AnySpan Erase(const Format& format, const Srcs& srcs) {
  return {[](const void* f, const void* s, Destinations dsts, size_t src_at, size_t bytes) {
            Span<Op>(*static_cast<const Format*>(f), *static_cast<const Srcs*>(s), dsts, src_at, 0,
                     bytes);
          },
          &format, &srcs};
}

// Around the caches by way of a buffer that stays in the first one: whatever the destinations'
// alignments, and with the code of the ordinary stores.
[[gnu::noinline]] inline void StreamBuffered(const AnySpan& any, Destinations dsts, size_t bytes) {
  constexpr size_t kBlock = 8192;
  alignas(kLineBytes) char buffer[kBlock];
  void* buffers[] = {buffer};
  for (size_t at = 0; at < bytes; at += kBlock) {
    const size_t block = bytes - at < kBlock ? bytes - at : kBlock;
    any.span(any.format, any.srcs, Destinations{buffers, 1}, at, block);
    for (int d = 0; d < dsts.n; ++d) StreamBytes(static_cast<char*>(dsts.p[d]) + at, buffer, block);
  }
}

template <class Op, class Format, class Srcs>
inline void Stream(const Format& format, const Srcs& srcs, Destinations dsts, size_t bytes) {
  if constexpr (Srcs::kFixed && kFastest<Op, Format>) {
    if (AlignedAlike(dsts, sizeof(typename Format::Stored))) {
      StreamAligned<Op>(format, srcs, dsts, bytes);
      return FenceStreams();
    }
  }
  StreamBuffered(Erase<Op>(format, srcs), dsts, bytes);
  FenceStreams();
}

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
#pragma GCC unroll 4
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
