// The kernels for AVX2 with F16C; its compiler flags are in CMakeLists.txt.
#include "core/kernels/reduce_impl.h"

namespace ronde::kernels {

const Variant& Avx2Variant() {
  return kThisVariant;
}

}  // namespace ronde::kernels
