// The kernels for what every processor has; its compiler flags are in CMakeLists.txt.
#include "core/kernels/reduce_impl.h"

namespace ronde::kernels {

const Variant& BaselineVariant() {
  return kThisVariant;
}

}  // namespace ronde::kernels
