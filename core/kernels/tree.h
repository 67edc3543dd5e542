// Operators and the canonical tree over the sources of one group of vectors (docs/numeric.md; see
// variant.h for how this is compiled).
#pragma once

#include <type_traits>

#include "core/kernels/reduce.h"
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
    return ((b < a) | (b != b)) ? b : a;
  }
};

struct Max {
  template <class V>
  static V Apply(V a, V b) {
    return ((b > a) | (b != b)) ? b : a;
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

}  // namespace
}  // namespace ronde::kernels
