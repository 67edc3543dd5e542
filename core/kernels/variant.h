// One build of the kernels for one instruction set. Internal to core/kernels.
//
// The headers from vector.h to reduce_impl.h are compiled once per instruction set, each time by
// one reduce_<isa>.cc with its own compiler flags. Everything in them lies in unnamed namespaces,
// so that the linker can never let code for a newer processor stand in for code of an older one.
#pragma once

#include <cstddef>

#include "core/kernels/reduce.h"
#include "ronde/dtype.h"

namespace ronde::kernels {

struct Variant {
  ReduceFn (*find)(DType dtype, ReduceOp op);                                  // FindReduce
  void (*stream_copy)(void* dst, const void* src, size_t bytes);               // Copy, kStreaming
  void (*stream_add)(float* c, const float* a, const float* b, size_t count);  // limit.h
  void (*add_in_place)(float* a, float* b, size_t count);                      // limit.h
};

// Elsewhere than on x86-64 only the baseline exists.
const Variant& BaselineVariant();
#if defined(__x86_64__)
const Variant& Avx2Variant();
const Variant& Avx512Variant();
#endif

// REQUIRES: this processor can run it.
const Variant& VariantOf(Isa isa);

}  // namespace ronde::kernels
