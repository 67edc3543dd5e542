// Session.run and Session.submit: Python's arguments become a ronde::Request.
#pragma once

#include "bindings/python/src/nb.h"

namespace ronde::python {

void RegisterCollectives(nanobind::module_& module);

}  // namespace ronde::python
