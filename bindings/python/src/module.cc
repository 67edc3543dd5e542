// The extension ronde._core. What Python users see is built on it in ronde/*.py.

#include "bindings/python/src/collectives.h"
#include "bindings/python/src/gradients.h"
#include "bindings/python/src/nb.h"
#include "bindings/python/src/session.h"
#include "bindings/python/src/tensors.h"

NB_MODULE(_core, module) {
  // Handles that users keep in globals outlive the module at exit, which is their right.
  nanobind::set_leak_warnings(false);
  module.attr("__version__") = RONDE_VERSION;
  ronde::python::RegisterTensors(module);
  ronde::python::RegisterSession(module);
  ronde::python::RegisterCollectives(module);
  ronde::python::RegisterGradients(module);
}
