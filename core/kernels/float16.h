// Exact conversions between float32 and the 16-bit floats, lane by lane (see variant.h).
//
// All of them round to nearest even, know denormals and keep a NaN a NaN (made quiet, upper bits of
// the payload kept), with the same bits whether by instruction or by integer arithmetic.
#pragma once

#include "core/kernels/vector.h"

namespace ronde::kernels {
namespace {

template <int L>
inline Vec<float, L> WidenBfloat16(Vec<uint16_t, L> v) {
  return Bits<Vec<float, L>>(Convert<uint32_t, L>(v) << 16);
}

// Not VCVTNEPS2BF16: it flushes denormals.
template <int L>
inline Vec<uint16_t, L> NarrowBfloat16(Vec<float, L> v) {
  using U = Vec<uint32_t, L>;
  const U bits = Bits<U>(v);
  const U rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const U nan = (bits >> 16) | 0x40u;
  return Convert<uint16_t, L>(v != v ? nan : rounded);
}

template <int L>
inline Vec<float, L> WidenFloat16Portable(Vec<uint16_t, L> v) {
  using U = Vec<uint32_t, L>;
  using I = Vec<int32_t, L>;
  const U half = Convert<uint32_t, L>(v);
  const U sign = (half & 0x8000u) << 16;
  const U magnitude = (half & 0x7fffu) << 13;
  // As a float32 the shifted exponent is too small by 112, for denormals as well as for normals.
  const U finite = Bits<U>(Bits<Vec<float, L>>(magnitude) * 0x1p112f);
  const U infinite = magnitude | 0x7f800000u;
  const U quiet = infinite | 0x400000u;
  const I order = Bits<I>(magnitude);
  const U special = order > 0x0f800000 ? quiet : infinite;
  return Bits<Vec<float, L>>(sign | (order >= 0x0f800000 ? special : finite));
}

template <int L>
inline Vec<uint16_t, L> NarrowFloat16Portable(Vec<float, L> v) {
  using U = Vec<uint32_t, L>;
  using I = Vec<int32_t, L>;
  const U bits = Bits<U>(v);
  const U sign = (bits >> 16) & 0x8000u;
  const U magnitude = bits & 0x7fffffffu;
  const I order = Bits<I>(magnitude);
  const U infinity = Splat<L>(0x7c00u);
  const U nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  const U large = order > 0x7f800000 ? nan : infinity;
  // One unit of 0.5f's last place is half precision's smallest denormal: the addition rounds.
  const U tiny = Bits<U>(Bits<Vec<float, L>>(magnitude) + 0.5f) - 0x3f000000u;
  const U normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const U finite = order < 0x38800000 ? tiny : normal;
  return Convert<uint16_t, L>(sign | (order >= 0x47800000 ? large : finite));
}

#if defined(__F16C__)

// GCC 12 warns, wrongly, about its own unmasked AVX-512 conversions.
constexpr uint16_t kAllLanes = 0xffff;

// Under F16C lanes are 1, 4, 8 or 16 (formats.h).
template <int L>
inline Vec<float, L> WidenFloat16(Vec<uint16_t, L> v) {
  if constexpr (L == 1) {
    return _cvtsh_ss(v);
  } else if constexpr (L == 4) {
    return Bits<Vec<float, L>>(_mm_cvtph_ps(_mm_cvtsi64_si128(Bits<int64_t>(v))));
  } else if constexpr (L == 8) {
    return Bits<Vec<float, L>>(_mm256_cvtph_ps(Bits<__m128i>(v)));
  } else {
#if defined(__AVX512F__)
    return Bits<Vec<float, L>>(_mm512_maskz_cvtph_ps(kAllLanes, Bits<__m256i>(v)));
#endif
  }
}

template <int L>
inline Vec<uint16_t, L> NarrowFloat16(Vec<float, L> v) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT;
  if constexpr (L == 1) {
    return _cvtss_sh(v, kNearest);
  } else if constexpr (L == 4) {
    return Bits<Vec<uint16_t, L>>(_mm_cvtsi128_si64(_mm_cvtps_ph(Bits<__m128>(v), kNearest)));
  } else if constexpr (L == 8) {
    return Bits<Vec<uint16_t, L>>(_mm256_cvtps_ph(Bits<__m256>(v), kNearest));
  } else {
#if defined(__AVX512F__)
    return Bits<Vec<uint16_t, L>>(_mm512_maskz_cvtps_ph(kAllLanes, Bits<__m512>(v), kNearest));
#endif
  }
}

#else

template <int L>
inline Vec<float, L> WidenFloat16(Vec<uint16_t, L> v) {
  return WidenFloat16Portable<L>(v);
}
template <int L>
inline Vec<uint16_t, L> NarrowFloat16(Vec<float, L> v) {
  return NarrowFloat16Portable<L>(v);
}

#endif

}  // namespace
}  // namespace ronde::kernels
