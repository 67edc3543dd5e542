#include "bindings/python/src/session.h"

#include <utility>

#include "bindings/python/src/errors.h"
#include "bindings/python/src/nb.h"
#include "bindings/python/src/tensors.h"

namespace ronde::python {
namespace {

nb::dict StatsOf(const RuntimeStats& stats) {
  nb::dict result;
  result["works"] = stats.works;
  result["bytes"] = stats.bytes;
  result["messages"] = stats.messages;
  result["rounds"] = stats.rounds;
  result["capped_sleeps"] = stats.capped_sleeps;
  result["rings"] = stats.rings;
  return result;
}

}  // namespace

std::shared_ptr<Session> Session::Open() {
  const Result<Config> config = Config::FromEnvironment();
  if (!config.ok()) Raise(config.status());
  const auto open = [&] {
    WaitOptions options;
    options.keep_waiting = CheckSignals;
    const nb::gil_scoped_release release;
    return ronde::Open(*config, options);
  };
  Result<std::unique_ptr<Runtime>> runtime = open();
  RaiseIfInterrupted();
  if (!runtime.ok()) Raise(runtime.status());
  return std::make_shared<Session>(*std::move(runtime));
}

void Session::Wait(const Work& work, int64_t timeout_ms) {
  Status status;
  if (work.done()) {
    status = work.status();
  } else {
    WaitOptions options;
    options.timeout_ms = timeout_ms;
    options.keep_waiting = CheckSignals;
    const nb::gil_scoped_release release;
    status = runtime_->Wait(work, options);
  }
  RaiseIfInterrupted();
  RaiseIfError(status);
}

void Session::Park(Work work, nb::object buffers) {
  if (!work.done()) parked_.push_back({std::move(work), std::move(buffers)});
}

void Session::Sweep() {
  if (parked_.empty()) return;
  std::erase_if(parked_, [](const Parked& parked) { return parked.work.done(); });
}

void Session::Shutdown() {
  {
    const nb::gil_scoped_release release;
    runtime_->Shutdown();
  }
  Sweep();
}

Handle::~Handle() {
  session_->Park(work_, std::move(buffers_));
}

void RegisterSession(nb::module_& module) {
  nb::class_<Session>(module, "Session", "Membership in a job. Made by open().")
      // On purpose never freed: whoever dies of an exception says no goodbye, and its peers see it
      // die.
      .def("abandon", [](const std::shared_ptr<Session>& s) { new std::shared_ptr<Session>(s); })
      .def_prop_ro("rank", [](Session& s) { return s.runtime().rank(); })
      .def_prop_ro("size", [](Session& s) { return s.runtime().size(); })
      .def_prop_ro("local_rank", [](Session& s) { return s.runtime().local_rank(); })
      .def_prop_ro("local_size", [](Session& s) { return s.runtime().local_size(); })
      .def_prop_ro("cross_rank", [](Session& s) { return s.runtime().cross_rank(); })
      .def_prop_ro("cross_size", [](Session& s) { return s.runtime().cross_size(); })
      .def("stats", [](Session& s) { return StatsOf(s.runtime().stats()); })
      .def("shutdown", &Session::Shutdown);
  module.def("open", &Session::Open, "Joins the job that the environment describes.");

  nb::class_<Handle>(module, "Handle", "A submitted operation.")
      .def("poll", [](Handle& h) { return h.session()->runtime().Poll(h.work()); })
      .def(
          "wait", [](Handle& h, int64_t timeout_ms) { h.session()->Wait(h.work(), timeout_ms); },
          nb::arg("timeout_ms") = -1)
      .def("torch_output",
           [](Handle& h, int i) {
             return MakeTorchTensor(h.work().output(i), h.work().output_shape(i).span(), {},
                                    h.work().output_memory(i));
           })
      .def("numpy_output",
           [](Handle& h, int i) {
             return MakeNumpyArray(h.work().output(i), h.work().output_shape(i).span(),
                                   h.work().output_memory(i));
           })
      .def("received_splits", [](Handle& h) {
        const auto splits = h.work().received_splits();
        return std::vector<int64_t>(splits.begin(), splits.end());
      });
}

}  // namespace ronde::python
