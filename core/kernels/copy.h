// Copies with and without the caches.
#pragma once

#include <cstddef>

#include "core/kernels/reduce.h"

namespace ronde::kernels {

// memcpy; kStreaming uses non-temporal stores and ends with a store fence. Regions must not
// overlap.
void Copy(void* dst, const void* src, size_t bytes, Store store);

}  // namespace ronde::kernels
