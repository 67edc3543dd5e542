// Formats: how an element type lies in memory, in which type it is accumulated, and where scaling
// happens (docs/numeric.md; see variant.h for how this is compiled).
//
// A format has Stored and Acc, kLanes (lanes of its widest vector), and two conversions: Widen,
// from memory to the accumulation type, and Narrow, the way back, once per result. The plain
// formats scale nothing; those with kScaled take their factors from the call's arguments.
#pragma once

#include <limits>
#include <type_traits>

#include "core/kernels/float16.h"
#include "core/kernels/reduce.h"
#include "core/kernels/vector.h"

namespace ronde::kernels {
namespace {

// Raw conversions of the four floating types.
template <typename T>
struct Native {
  using Stored = T;
  using Acc = T;
  template <int L>
  static Vec<T, L> Widen(Vec<T, L> v) {
    return v;
  }
  template <int L>
  static Vec<T, L> Narrow(Vec<T, L> v) {
    return v;
  }
};
using Float32 = Native<float>;
using Float64 = Native<double>;

struct Float16 {
  using Stored = uint16_t;
  using Acc = float;
  template <int L>
  static Vec<float, L> Widen(Vec<uint16_t, L> v) {
    return WidenFloat16<L>(v);
  }
  template <int L>
  static Vec<uint16_t, L> Narrow(Vec<float, L> v) {
    return NarrowFloat16<L>(v);
  }
};

struct Bfloat16 {
  using Stored = uint16_t;
  using Acc = float;
  template <int L>
  static Vec<float, L> Widen(Vec<uint16_t, L> v) {
    return WidenBfloat16<L>(v);
  }
  template <int L>
  static Vec<uint16_t, L> Narrow(Vec<float, L> v) {
    return NarrowBfloat16<L>(v);
  }
};

template <class Raw>
struct FloatPlain {
  using Stored = typename Raw::Stored;
  using Acc = typename Raw::Acc;
  static constexpr int kLanes = kVectorBytes / sizeof(Acc);
  static constexpr bool kFloating = true;
  static constexpr bool kScaled = false;

  explicit FloatPlain(const ReduceArgs&, int /*divisor*/) {}
  template <int L>
  Vec<Acc, L> Widen(Vec<Stored, L> v) const {
    return Raw::template Widen<L>(v);
  }
  template <int L>
  Vec<Stored, L> Narrow(Vec<Acc, L> v) const {
    return Raw::template Narrow<L>(v);
  }
};

template <class Raw>
class FloatScaled {
 public:
  using Stored = typename Raw::Stored;
  using Acc = typename Raw::Acc;
  static constexpr int kLanes = kVectorBytes / sizeof(Acc);
  static constexpr bool kFloating = true;
  static constexpr bool kScaled = true;

  FloatScaled(const ReduceArgs& args, int divisor)
      : pre_(static_cast<Acc>(args.prescale)),
        post_(static_cast<Acc>(args.postscale)),
        divisor_(static_cast<Acc>(divisor)),
        inverse_(1 / divisor_),
        inverse_is_exact_((divisor & (divisor - 1)) == 0) {}

  template <int L>
  Vec<Acc, L> Widen(Vec<Stored, L> v) const {
    return Raw::template Widen<L>(v) * pre_;
  }
  template <int L>
  Vec<Stored, L> Narrow(Vec<Acc, L> v) const {
    // Dividing by a power of two is multiplying by its inverse, bit for bit, and much faster.
    v = inverse_is_exact_ ? v * inverse_ : v / divisor_;
    return Raw::template Narrow<L>(v * post_);
  }

 private:
  Acc pre_, post_, divisor_, inverse_;
  bool inverse_is_exact_;
};

// Sums and products are computed in unsigned integers, which wrap; min and max in T itself.
template <class T, class A>
struct IntPlain {
  using Stored = T;
  using Acc = A;
  static constexpr int kLanes = kVectorBytes / sizeof(T);
  static constexpr bool kFloating = false;
  static constexpr bool kScaled = false;

  explicit IntPlain(const ReduceArgs&, int /*divisor*/) {}
  template <int L>
  Vec<A, L> Widen(Vec<T, L> v) const {
    return Bits<Vec<A, L>>(v);
  }
  template <int L>
  Vec<T, L> Narrow(Vec<A, L> v) const {
    return Bits<Vec<T, L>>(v);
  }
};

// Toward zero, saturated at T's limits, NaN to 0.
template <class T>
inline T ScaleInt(T value, double factor) {
  using Limits = std::numeric_limits<T>;
  // The largest value plus one, a power of two, is exact where the largest value is not.
  constexpr double kEnd = 2.0 * static_cast<double>(Limits::max() / 2 + 1);
  const double scaled = static_cast<double>(value) * factor;
  if (scaled != scaled) return 0;
  if (scaled >= kEnd) return Limits::max();
  return scaled <= static_cast<double>(Limits::min()) ? Limits::min() : static_cast<T>(scaled);
}

// Scaling and averaging integers is rare: one lane, short code.
template <class T, class A>
class IntScaled {
 public:
  using Stored = T;
  using Acc = A;
  static constexpr int kLanes = 1;
  static constexpr bool kFloating = false;
  static constexpr bool kScaled = true;

  IntScaled(const ReduceArgs& args, int /*divisor*/) : pre_(args.prescale), post_(args.postscale) {}

  template <int L>
  A Widen(T v) const {
    return static_cast<A>(pre_ == 1.0 ? v : ScaleInt(v, pre_));
  }
  template <int L>
  T Narrow(A v) const {
    const T result = static_cast<T>(v);
    return post_ == 1.0 ? result : ScaleInt(result, post_);
  }

 private:
  double pre_, post_;
};

// A is twice as wide as T, or wider.
template <class T, class A>
class IntAverage {
 public:
  using Stored = T;
  using Acc = A;
  static constexpr int kLanes = 1;
  static constexpr bool kFloating = false;
  static constexpr bool kScaled = true;

  IntAverage(const ReduceArgs& args, int divisor)
      : pre_(args.prescale), post_(args.postscale), divisor_(divisor) {}

  template <int L>
  A Widen(T v) const {
    return pre_ == 1.0 ? v : ScaleInt(v, pre_);
  }
  template <int L>
  T Narrow(A sum) const {
    // Dividing 128 bits is a function call, and they are seldom needed.
    const auto low = static_cast<int64_t>(sum);
    const T result = Saturate(low == sum ? Floor<int64_t>(low) : Floor<A>(sum));
    return post_ == 1.0 ? result : ScaleInt(result, post_);
  }

 private:
  template <class Sum>
  A Floor(Sum sum) const {
    return sum / divisor_ - (sum % divisor_ < 0);
  }
  static T Saturate(A v) {
    using Limits = std::numeric_limits<T>;
    if (v > Limits::max()) return Limits::max();
    return v < Limits::min() ? Limits::min() : static_cast<T>(v);
  }

  double pre_, post_;
  int divisor_;
};

struct BoolPlain {
  using Stored = uint8_t;
  using Acc = uint8_t;
  static constexpr int kLanes = kVectorBytes;
  static constexpr bool kFloating = false;
  static constexpr bool kScaled = false;

  explicit BoolPlain(const ReduceArgs&, int /*divisor*/) {}
  template <int L>
  Vec<uint8_t, L> Widen(Vec<uint8_t, L> v) const {
    const auto one = Splat<L>(uint8_t{1});
    return v < one ? v : one;
  }
  template <int L>
  Vec<uint8_t, L> Narrow(Vec<uint8_t, L> v) const {
    return v;
  }
};

class BoolScaled {
 public:
  using Stored = uint8_t;
  using Acc = uint8_t;
  static constexpr int kLanes = kVectorBytes;
  static constexpr bool kFloating = false;
  static constexpr bool kScaled = true;

  BoolScaled(const ReduceArgs& args, int /*divisor*/)
      : pre_(args.prescale != 0), post_(args.postscale != 0) {}
  template <int L>
  Vec<uint8_t, L> Widen(Vec<uint8_t, L> v) const {
    const auto one = Splat<L>(pre_);
    return v < one ? v : one;
  }
  template <int L>
  Vec<uint8_t, L> Narrow(Vec<uint8_t, L> v) const {
    return v & post_;
  }

 private:
  uint8_t pre_, post_;  // 0 or 1
};

}  // namespace
}  // namespace ronde::kernels
