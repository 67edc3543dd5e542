// The physical floor: kernels that do nothing but an operation's reads and writes, at the speed the
// memory allows. Benchmarks time them on the same footprint as the collective and print the ratio.
//
// Pure functions on caller's memory: any thread, never block, no state. Nothing in Ronde reduces
// with them. Alignment: any for StreamCopy, that of float for the others (64 bytes is fastest).
#pragma once

#include <cstddef>

namespace ronde::kernels {

// c[i] = a[i] + b[i] by non-temporal stores, ended by a store fence: three streams, 12 bytes of
// traffic per element. The floor of an allreduce of two ranks into one shared result. c must not
// overlap a or b.
void StreamAdd(float* c, const float* a, const float* b, size_t count);

// memcpy by non-temporal stores, ended by a store fence: two streams. The floor of every transfer.
void StreamCopy(void* dst, const void* src, size_t bytes);

// a[i] = b[i] = a[i] + b[i] by ordinary stores: two streams, each read and written. The floor of an
// allreduce of two ranks in place. a and b must not overlap.
void AddInPlace(float* a, float* b, size_t count);

}  // namespace ronde::kernels
