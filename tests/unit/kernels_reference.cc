#include "tests/unit/kernels_reference.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <type_traits>

namespace ronde::kernels::reference {
namespace {

using Wide = __int128;

template <class T>
T At(const Bytes& bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void Put(Bytes& bytes, size_t i, T value) {
  std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
}

// T[a,b) as docs/numeric.md defines it.
template <class T>
T Tree(int a, int b, const std::function<T(int)>& leaf, T (*combine)(T, T)) {
  if (b - a == 1) return leaf(a);
  int power = 1;
  while (2 * power < b - a) power *= 2;
  return combine(Tree<T>(a, a + power, leaf, combine), Tree<T>(a + power, b, leaf, combine));
}

template <class A>
A CombineFloat(ReduceOp op, A a, A b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return a + b;
    case ReduceOp::kMin:
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<A>::quiet_NaN();
      return a <= b ? a : b;
    case ReduceOp::kMax:
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<A>::quiet_NaN();
      return a >= b ? a : b;
    case ReduceOp::kProduct:
      return a * b;
  }
  return a;
}

template <class A>
using Combine = A (*)(A, A);

template <class A, template <ReduceOp> class Functor>
Combine<A> Pick(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return Functor<ReduceOp::kSum>::Apply;
    case ReduceOp::kAverage:
      return Functor<ReduceOp::kAverage>::Apply;
    case ReduceOp::kMin:
      return Functor<ReduceOp::kMin>::Apply;
    case ReduceOp::kMax:
      return Functor<ReduceOp::kMax>::Apply;
    case ReduceOp::kProduct:
      return Functor<ReduceOp::kProduct>::Apply;
  }
  return nullptr;
}

template <class A>
struct FloatOp {
  template <ReduceOp kOp>
  struct Of {
    static A Apply(A a, A b) { return CombineFloat<A>(kOp, a, b); }
  };
};

// A is the accumulation type; decode and encode are between it and the stored S.
template <class S, class A, class Decode, class Encode>
Bytes ReduceFloat(ReduceOp op, const std::vector<Bytes>& srcs, size_t count, const Factors& f,
                  Decode decode, Encode encode) {
  const auto combine = Pick<A, FloatOp<A>::template Of>(op);
  Bytes out(count * sizeof(S));
  for (size_t i = 0; i < count; ++i) {
    const std::function<A(int)> leaf = [&](int k) -> A {
      const A x = decode(At<S>(srcs[k], i));
      return f.prescale == 1.0 ? x : x * static_cast<A>(f.prescale);
    };
    A x = Tree<A>(0, static_cast<int>(srcs.size()), leaf, combine);
    if (op == ReduceOp::kAverage) x = x / static_cast<A>(f.divisor);
    if (f.postscale != 1.0) x = x * static_cast<A>(f.postscale);
    Put<S>(out, i, encode(x));
  }
  return out;
}

template <class T>
Wide ScaleInt(Wide value, double factor) {
  if (factor == 1.0) return value;
  const double scaled = std::trunc(static_cast<double>(static_cast<T>(value)) * factor);
  if (std::isnan(scaled)) return 0;
  const Wide low = std::numeric_limits<T>::min();
  const Wide high = std::numeric_limits<T>::max();
  if (scaled <= static_cast<double>(low)) return low;
  return scaled >= static_cast<double>(high) ? high : static_cast<Wide>(scaled);
}

struct IntOp {
  template <ReduceOp kOp>
  struct Of {
    static Wide Apply(Wide a, Wide b) {
      switch (kOp) {
        case ReduceOp::kSum:
        case ReduceOp::kAverage:
          return a + b;
        case ReduceOp::kMin:
          return std::min(a, b);
        case ReduceOp::kMax:
          return std::max(a, b);
        case ReduceOp::kProduct:
          // Modulo 2^64 is enough: every type wraps modulo a divisor of it.
          return static_cast<Wide>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
      }
      return 0;
    }
  };
};

template <class T>
Bytes ReduceInt(ReduceOp op, const std::vector<Bytes>& srcs, size_t count, const Factors& f) {
  const auto combine = Pick<Wide, IntOp::Of>(op);
  Bytes out(count * sizeof(T));
  for (size_t i = 0; i < count; ++i) {
    const std::function<Wide(int)> leaf = [&](int k) {
      return ScaleInt<T>(At<T>(srcs[k], i), f.prescale);
    };
    Wide x = Tree<Wide>(0, static_cast<int>(srcs.size()), leaf, combine);
    if (op == ReduceOp::kAverage) {
      Wide quotient = x / f.divisor;
      if (quotient * f.divisor > x) --quotient;
      x = std::min<Wide>(std::max<Wide>(quotient, std::numeric_limits<T>::min()),
                         std::numeric_limits<T>::max());
    }
    const T wrapped = static_cast<T>(x);
    Put<T>(out, i, static_cast<T>(ScaleInt<T>(wrapped, f.postscale)));
  }
  return out;
}

Bytes ReduceBool(ReduceOp op, const std::vector<Bytes>& srcs, size_t count, const Factors& f) {
  const bool any = op == ReduceOp::kSum || op == ReduceOp::kMax;
  Bytes out(count);
  for (size_t i = 0; i < count; ++i) {
    int trues = 0;
    for (const Bytes& src : srcs) trues += src[i] != 0 && f.prescale != 0;
    const bool result = any ? trues > 0 : trues == static_cast<int>(srcs.size());
    out[i] = result && f.postscale != 0;
  }
  return out;
}

template <class T>
void FillInts(Bytes& bytes, size_t count, std::mt19937_64& random) {
  using Limits = std::numeric_limits<T>;
  const T extremes[] = {Limits::min(), Limits::max(), 0, 1, static_cast<T>(-1)};
  for (size_t i = 0; i < count; ++i) {
    const uint64_t r = random();
    Put<T>(bytes, i, r % 8 == 0 ? extremes[(r >> 8) % 5] : static_cast<T>(r >> 8));
  }
}

// Moderate magnitudes for the most part, so that sums depend on the order and products stay
// finite; one in 32 is any bit pattern, one in 32 is special.
template <class S>
void FillFloats(Bytes& bytes, size_t count, std::mt19937_64& random, int mantissa_bits,
                S exponent_bias) {
  const int total_bits = 8 * sizeof(S);
  const S sign = S{1} << (total_bits - 1);
  const S infinity = static_cast<S>((2 * exponent_bias + 1) << mantissa_bits);
  const S specials[] = {0,
                        sign,
                        infinity,
                        static_cast<S>(infinity | sign),
                        static_cast<S>(infinity | 1),
                        static_cast<S>(infinity | (infinity >> 1)),
                        1,
                        static_cast<S>(sign | 1),
                        static_cast<S>((S{1} << mantissa_bits) - 1),
                        static_cast<S>(infinity - 1)};
  for (size_t i = 0; i < count; ++i) {
    const uint64_t kind = random();
    const uint64_t bits = random();
    S value = static_cast<S>(bits);
    if (kind % 32 == 0) {
      value = specials[bits % 10];
    } else if (kind % 32 != 1) {
      const S exponent = static_cast<S>(exponent_bias - 6 + static_cast<S>((kind >> 8) % 12));
      value = static_cast<S>((value & static_cast<S>(sign | ((S{1} << mantissa_bits) - 1))) |
                             static_cast<S>(exponent << mantissa_bits));
    }
    Put<S>(bytes, i, value);
  }
}

}  // namespace

std::vector<Isa> SupportedIsas() {
  std::vector<Isa> isas;
  for (const char* name : {"baseline", "avx2", "avx512"}) {
    if (auto isa = ParseIsa(name); isa.ok()) isas.push_back(*isa);
  }
  return isas;
}

uint16_t Encode16(float x, int mantissa_bits, int min_exponent) {
  const int bias = 1 - min_exponent;
  const auto sign = static_cast<uint16_t>(std::signbit(x) ? 0x8000 : 0);
  const auto infinity = static_cast<uint16_t>((2 * bias + 1) << mantissa_bits);
  if (std::isnan(x)) return static_cast<uint16_t>(sign | infinity | 1);
  const double magnitude = std::fabs(static_cast<double>(x));
  if (std::isinf(magnitude)) return static_cast<uint16_t>(sign | infinity);
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), min_exponent);
  // In units of the last place; denormals and a carry into the next exponent fall out right.
  const double units = std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent));
  const double code =
      units + std::ldexp(static_cast<double>(exponent - min_exponent), mantissa_bits);
  return code >= infinity ? static_cast<uint16_t>(sign | infinity)
                          : static_cast<uint16_t>(sign | static_cast<uint16_t>(code));
}

float Decode16(uint16_t bits, int mantissa_bits, int min_exponent) {
  const int bias = 1 - min_exponent;
  const int exponent = (bits & 0x7fff) >> mantissa_bits;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  double value = 0;
  if (exponent == 2 * bias + 1) {
    value = mantissa ? std::numeric_limits<double>::quiet_NaN()
                     : std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, min_exponent - mantissa_bits);
  } else {
    value = std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  }
  return static_cast<float>(bits & 0x8000 ? -value : value);
}

Bytes Reduce(DType dtype, ReduceOp op, const std::vector<Bytes>& srcs, size_t count,
             const Factors& factors) {
  const auto same = [](auto x) { return x; };
  const auto reduce16 = [&](int bits, int min_exponent) {
    return ReduceFloat<uint16_t, float>(
        op, srcs, count, factors, [=](uint16_t x) { return Decode16(x, bits, min_exponent); },
        [=](float x) { return Encode16(x, bits, min_exponent); });
  };
  switch (dtype) {
    case DType::kBool:
      return ReduceBool(op, srcs, count, factors);
    case DType::kUint8:
      return ReduceInt<uint8_t>(op, srcs, count, factors);
    case DType::kInt8:
      return ReduceInt<int8_t>(op, srcs, count, factors);
    case DType::kInt16:
      return ReduceInt<int16_t>(op, srcs, count, factors);
    case DType::kInt32:
      return ReduceInt<int32_t>(op, srcs, count, factors);
    case DType::kInt64:
      return ReduceInt<int64_t>(op, srcs, count, factors);
    case DType::kFloat16:
      return reduce16(10, -14);
    case DType::kBfloat16:
      return reduce16(7, -126);
    case DType::kFloat32:
      return ReduceFloat<float, float>(op, srcs, count, factors, same, same);
    case DType::kFloat64:
      return ReduceFloat<double, double>(op, srcs, count, factors, same, same);
  }
  return {};
}

Bytes RandomElements(DType dtype, size_t count, std::mt19937_64& random) {
  Bytes bytes(count * DTypeSize(dtype));
  switch (dtype) {
    case DType::kBool:
      for (char& b : bytes) b = random() % 4 == 0 ? static_cast<char>(random()) : random() % 2;
      break;
    case DType::kUint8:
      FillInts<uint8_t>(bytes, count, random);
      break;
    case DType::kInt8:
      FillInts<int8_t>(bytes, count, random);
      break;
    case DType::kInt16:
      FillInts<int16_t>(bytes, count, random);
      break;
    case DType::kInt32:
      FillInts<int32_t>(bytes, count, random);
      break;
    case DType::kInt64:
      FillInts<int64_t>(bytes, count, random);
      break;
    case DType::kFloat16:
      FillFloats<uint16_t>(bytes, count, random, 10, 15);
      break;
    case DType::kBfloat16:
      FillFloats<uint16_t>(bytes, count, random, 7, 127);
      break;
    case DType::kFloat32:
      FillFloats<uint32_t>(bytes, count, random, 23, 127);
      break;
    case DType::kFloat64:
      FillFloats<uint64_t>(bytes, count, random, 52, 1023);
      break;
  }
  return bytes;
}

bool IsNan(DType dtype, const char* element) {
  uint16_t half = 0;
  float single = 0;
  double twice = 0;
  switch (dtype) {
    case DType::kFloat16:
      std::memcpy(&half, element, sizeof(half));
      return (half & 0x7fff) > 0x7c00;
    case DType::kBfloat16:
      std::memcpy(&half, element, sizeof(half));
      return (half & 0x7fff) > 0x7f80;
    case DType::kFloat32:
      std::memcpy(&single, element, sizeof(single));
      return std::isnan(single);
    case DType::kFloat64:
      std::memcpy(&twice, element, sizeof(twice));
      return std::isnan(twice);
    case DType::kBool:
    case DType::kUint8:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
      return false;
  }
  return false;
}

size_t FirstDifference(DType dtype, const char* got, const char* expected, size_t count) {
  const size_t size = DTypeSize(dtype);
  if (count == 0 || std::memcmp(got, expected, count * size) == 0) return count;
  for (size_t i = 0; i < count; ++i) {
    const char* a = got + i * size;
    const char* b = expected + i * size;
    if (std::memcmp(a, b, size) != 0 && !(IsNan(dtype, a) && IsNan(dtype, b))) return i;
  }
  return count;
}

}  // namespace ronde::kernels::reference
