#include "bindings/python/src/errors.h"

#include <string>

namespace ronde::python {

void Raise(const Status& status) {
  const std::string name(CodeName(status.code()));
  const std::string text(status.message());
  const nb::object type = nb::module_::import_("ronde.errors").attr(name.c_str());
  const nb::str whole(text.c_str(), text.size());  // a name may have a NUL in it
  PyErr_SetObject(type.ptr(), whole.ptr());
  throw nb::python_error();
}

bool CheckSignals() {
  const nb::gil_scoped_acquire gil;
  return PyErr_CheckSignals() == 0;
}

}  // namespace ronde::python
