#include "core/kernels/copy.h"

#include <cstring>

#include "core/kernels/variant.h"

namespace ronde::kernels {

void Copy(void* dst, const void* src, size_t bytes, Store store) {
  switch (store) {
    case Store::kCached:
      if (bytes > 0) std::memcpy(dst, src, bytes);
      return;
    case Store::kStreaming:
      return VariantOf(DetectIsa()).stream_copy(dst, src, bytes);
  }
}

}  // namespace ronde::kernels
