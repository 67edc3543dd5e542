// Session: this process's membership in a job, as Python holds it, and the works it has in flight.
#pragma once

#include <memory>
#include <vector>

#include "bindings/python/src/nb.h"
#include "ronde/runtime.h"

namespace ronde::python {

// Owned by the Python object ronde._core.Session and by everything that must not outlive the
// Runtime (handles, gradient sets). Every method needs the GIL, and releases it while it blocks.
class Session {
 public:
  // Joins the job of the environment; Ctrl-C ends the wait for the other ranks. Raises.
  static std::shared_ptr<Session> Open();

  explicit Session(std::unique_ptr<Runtime> runtime) : runtime_(std::move(runtime)) {}

  Runtime& runtime() { return *runtime_; }

  // Waits for `work`; raises its error, KeyboardInterrupt or ronde.Timeout. Without an exception
  // the work is done and went well.
  void Wait(const Work& work, int64_t timeout_ms);

  // Keeps `buffers` until `work` is done, for a work that nobody will wait for: Ronde may still
  // read and write its memory.
  void Park(Work work, nb::object buffers);
  // Forgets what is done. Cheap when nothing is parked.
  void Sweep();

  void Shutdown();

 private:
  struct Parked {
    Work work;
    nb::object buffers;
  };

  const std::unique_ptr<Runtime> runtime_;
  std::vector<Parked> parked_;
};

// A submitted operation, with what keeps its memory alive. Owned by Python.
class Handle {
 public:
  Handle(std::shared_ptr<Session> session, Work work, nb::object buffers)
      : session_(std::move(session)), work_(std::move(work)), buffers_(std::move(buffers)) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle();

  const std::shared_ptr<Session>& session() const { return session_; }
  const Work& work() const { return work_; }

 private:
  const std::shared_ptr<Session> session_;
  const Work work_;
  nb::object buffers_;  // the lists of input and output tensors
};

void RegisterSession(nb::module_& module);

}  // namespace ronde::python
