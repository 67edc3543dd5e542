// The kernels for AVX-512 F, BW, VL and DQ; its compiler flags are in CMakeLists.txt.
#include "core/kernels/reduce_impl.h"

namespace ronde::kernels {

const Variant& Avx512Variant() {
  return kThisVariant;
}

}  // namespace ronde::kernels
