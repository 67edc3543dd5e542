// Status becomes a Python exception: the class of ronde.errors that is named like its code.
#pragma once

#include "bindings/python/src/nb.h"
#include "ronde/status.h"

namespace ronde::python {

// The Python error indicator is set, for throwing. REQUIRES: the GIL, !status.ok().
[[noreturn]] void Raise(const Status& status);

// A Ctrl-C that came meanwhile goes first: the error is often its consequence on other ranks.
inline void RaiseIfError(const Status& status) {
  if (status.ok()) return;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  Raise(status);
}

// For WaitOptions::keep_waiting: runs Python's signal handlers. False when one raised; the
// exception stays set in this thread's Python state. Called without the GIL.
bool CheckSignals();

// Raises what CheckSignals left behind, if anything. REQUIRES: the GIL.
inline void RaiseIfInterrupted() {
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
}

}  // namespace ronde::python
