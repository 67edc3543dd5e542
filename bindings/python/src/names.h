// Attribute names that are looked up several times per call on the hot path; interned ones need no
// hashing.
#pragma once

#include "bindings/python/src/nb.h"

namespace ronde::python {

// Of tensors and arrays. Never destroyed: at exit the interpreter goes first.
struct Names {
  PyObject* data_ptr = PyUnicode_InternFromString("data_ptr");
  PyObject* device = PyUnicode_InternFromString("device");
  PyObject* dtype = PyUnicode_InternFromString("dtype");
  PyObject* grad = PyUnicode_InternFromString("grad");
  PyObject* is_contiguous = PyUnicode_InternFromString("is_contiguous");
  PyObject* is_cpu = PyUnicode_InternFromString("is_cpu");
  PyObject* layout = PyUnicode_InternFromString("layout");
  PyObject* requires_grad = PyUnicode_InternFromString("requires_grad");
  PyObject* shape = PyUnicode_InternFromString("shape");
  PyObject* stride = PyUnicode_InternFromString("stride");
};

inline const Names& TheNames() {
  static const Names names;
  return names;
}

}  // namespace ronde::python
