// nanobind, with every type caster that the module uses. No file includes nanobind's headers
// itself: one that lacks a caster compiles all the same, differently from the others, and which of
// the two the linker keeps is chance.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace ronde::python {

namespace nb = nanobind;

}  // namespace ronde::python
