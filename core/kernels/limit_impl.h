// The floor's kernels (limit.h), compiled beside the real ones so that they get the same vectors
// (see variant.h).
#pragma once

#include "core/kernels/vector.h"

namespace ronde::kernels {
namespace {

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

}  // namespace
}  // namespace ronde::kernels
