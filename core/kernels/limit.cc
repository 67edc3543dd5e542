#include "core/kernels/limit.h"

#include "core/kernels/variant.h"

namespace ronde::kernels {

void StreamAdd(float* c, const float* a, const float* b, size_t count) {
  VariantOf(DetectIsa()).stream_add(c, a, b, count);
}

void StreamCopy(void* dst, const void* src, size_t bytes) {
  VariantOf(DetectIsa()).stream_copy(dst, src, bytes);
}

void AddInPlace(float* a, float* b, size_t count) {
  VariantOf(DetectIsa()).add_in_place(a, b, count);
}

}  // namespace ronde::kernels
