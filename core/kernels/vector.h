// Vectors of L lanes, written once for every instruction set (see variant.h). L = 1 is the scalar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ronde::kernels {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif
constexpr int kLineBytes = 64;

template <class T, int L>
struct VecOf {
  typedef T Type __attribute__((vector_size(sizeof(T) * L)));
};
template <class T>
struct VecOf<T, 1> {
  using Type = T;
};
template <class T, int L>
using Vec = typename VecOf<T, L>::Type;

template <int L, class T>
[[gnu::always_inline]] inline Vec<T, L> Splat(T value) {
  return Vec<T, L>{} + value;
}

// Lane by lane static_cast.
template <class To, int L, class V>
[[gnu::always_inline]] inline Vec<To, L> Convert(V v) {
  if constexpr (L == 1) {
    return static_cast<To>(v);
  } else {
    return __builtin_convertvector(v, Vec<To, L>);
  }
}

// The same bits under another type.
template <class To, class From>
[[gnu::always_inline]] inline To Bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}

template <class V>
[[gnu::always_inline]] inline V LoadVec(const char* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}

// kStream: around the caches; p must then be aligned to the vector. Vectors too narrow for the
// processor's non-temporal stores are stored as usual.
template <bool kStream, class V>
[[gnu::always_inline]] inline void StoreVec(char* p, V v) {
#if defined(__x86_64__)
  if constexpr (kStream && sizeof(V) == 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(p), Bits<__m128i>(v));
    return;
  }
#if defined(__AVX2__)
  if constexpr (kStream && sizeof(V) == 32) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(p), Bits<__m256i>(v));
    return;
  }
#endif
#if defined(__AVX512F__)
  if constexpr (kStream && sizeof(V) == 64) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(p), Bits<__m512i>(v));
    return;
  }
#endif
#endif
  __builtin_memcpy(p, &v, sizeof(v));
}

inline void FenceStreams() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

// Bytes from p to the next line of the cache.
inline size_t BytesToLine(const void* p) {
  return -reinterpret_cast<uintptr_t>(p) % kLineBytes;
}

// memcpy whose whole lines go around the caches. No fence.
inline void StreamBytes(char* dst, const char* src, size_t bytes) {
  const size_t head = BytesToLine(dst);
  if (bytes < head + kLineBytes) {
    __builtin_memcpy(dst, src, bytes);
    return;
  }
  __builtin_memcpy(dst, src, head);
  using V = Vec<uint8_t, kVectorBytes>;
  constexpr int kStep = kVectorBytes == kLineBytes ? 4 : kLineBytes / kVectorBytes;
  size_t at = head;
  for (; at + kStep * kVectorBytes <= bytes; at += kStep * kVectorBytes) {
    V v[kStep];
    for (int u = 0; u < kStep; ++u) v[u] = LoadVec<V>(src + at + u * kVectorBytes);
    for (int u = 0; u < kStep; ++u) StoreVec<true>(dst + at + u * kVectorBytes, v[u]);
  }
  for (; at + kVectorBytes <= bytes; at += kVectorBytes) {
    StoreVec<true>(dst + at, LoadVec<V>(src + at));
  }
  __builtin_memcpy(dst + at, src + at, bytes - at);
}

}  // namespace
}  // namespace ronde::kernels
