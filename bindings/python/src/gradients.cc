#include "bindings/python/src/gradients.h"

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "bindings/python/src/errors.h"
#include "bindings/python/src/names.h"
#include "bindings/python/src/nb.h"
#include "bindings/python/src/tensors.h"
#include "core/kernels/copy.h"

namespace ronde::python {
namespace {

// Above this a copy lets other Python threads run meanwhile.
constexpr size_t kReleaseGilBytes = 256 << 10;
// A set that no cache holds until its reduction is copied past the caches: what is not read back
// costs half the traffic.
constexpr int64_t kBeyondCaches = 16 << 20;

nb::object Attr(nb::handle object, PyObject* name) {
  nb::object value = nb::steal(PyObject_GetAttr(object.ptr(), name));
  if (!value.is_valid()) throw nb::python_error();
  return value;
}

nb::object Call(nb::handle object, PyObject* name) {
  nb::object value = nb::steal(PyObject_CallMethodNoArgs(object.ptr(), name));
  if (!value.is_valid()) throw nb::python_error();
  return value;
}

// The address of a dense tensor on the CPU; null for every other kind.
void* AddressOf(nb::handle tensor) {
  if (!Attr(tensor, TheNames().is_cpu).is(nb::handle(Py_True))) return nullptr;
  const nb::object address =
      nb::steal(PyObject_CallMethodNoArgs(tensor.ptr(), TheNames().data_ptr));
  if (!address.is_valid()) {
    PyErr_Clear();  // sparse tensors have none
    return nullptr;
  }
  return PyLong_AsVoidPtr(address.ptr());
}

std::string Text(nb::handle object) {
  return nb::str(object).c_str();
}

std::string Describe(nb::handle tensor) {
  const Names& names = TheNames();
  return fmt::format("{} {} ({}, on {})", Text(Attr(tensor, names.dtype)),
                     Text(nb::list(Attr(tensor, names.shape))), Text(Attr(tensor, names.layout)),
                     Text(Attr(tensor, names.device)));
}

}  // namespace

GradientSet::GradientSet(std::shared_ptr<Session> session, std::unique_ptr<Set> set,
                         bool idempotent)
    : session_(std::move(session)),
      set_(std::move(set)),
      idempotent_(idempotent),
      entries_(static_cast<size_t>(set_->num_tensors())) {}

void GradientSet::Bind(int t, std::vector<int64_t> shape, std::vector<int64_t> strides) {
  Entry& entry = entries_.at(static_cast<size_t>(t));
  const TensorView view = set_->slot(t);
  entry.data = view.data;
  entry.bytes = static_cast<size_t>(view.size_bytes());
  total_bytes_ += view.size_bytes();
  if (total_bytes_ > kBeyondCaches) store_ = kernels::Store::kStreaming;
  entry.shape = std::move(shape);
  entry.strides = std::move(strides);
  entry.base = MakeTensor(t);
  entry.dtype = Attr(entry.base, TheNames().dtype);
  entry.shape_tuple = Attr(entry.base, TheNames().shape);
  entry.stride_tuple = Call(entry.base, TheNames().stride);
  entry.copy = entry.base.attr("copy_");
  entry.tensor = MakeTensor(t);
}

nb::object GradientSet::MakeTensor(int t) const {
  const Entry& entry = entries_[static_cast<size_t>(t)];
  return MakeTorchTensor(set_->slot(t), entry.shape, entry.strides, set_->slot_memory());
}

void GradientSet::OnGradient(int t, nb::handle param) {
  if (!in_backward_) {
    const nb::object accumulating = begin_();
    if (accumulating.is_none()) return;  // the optimizer is gone
    accumulating_ = nb::cast<bool>(accumulating);
    in_backward_ = true;
  }
  if (!accumulating_) Contribute(t, param);
}

void GradientSet::Contribute(int t, nb::handle param) {
  Entry& entry = entries_[static_cast<size_t>(t)];
  const nb::object grad = Attr(param, TheNames().grad);
  if (grad.is_none()) return;
  std::string why;
  void* const data = AddressOf(grad);
  if (data == entry.data) {
    if (reduced_ && !idempotent_) {
      why =
          "a second backward() before step() would reduce a result again; use "
          "backward_passes_per_step or no_sync(), or call zero_grad() between";
    }
  } else if (CopyIn(entry, grad, data, &why)) {
    // Module.to() and the like re-point a .grad that they find, which may have been our tensor.
    if (AddressOf(entry.tensor) != entry.data) entry.tensor = MakeTensor(t);
    if (PyObject_SetAttr(param.ptr(), TheNames().grad, entry.tensor.ptr()) != 0) {
      throw nb::python_error();
    }
  }
  entry.contributed = true;
  RaiseIfError(why.empty() ? set_->Mark(t) : set_->Poison(t, std::move(why)));
}

bool GradientSet::CopyIn(const Entry& entry, nb::handle grad, const void* data,
                         std::string* why) const {
  const Names& names = TheNames();
  if (!Attr(grad, names.dtype).is(entry.dtype) ||
      !Attr(grad, names.shape).equal(entry.shape_tuple) || (data == nullptr && entry.bytes != 0)) {
    *why = fmt::format("its gradient is {}, declared was {}", Describe(grad), Describe(entry.base));
    return false;
  }
  if (Attr(grad, names.requires_grad).is(nb::handle(Py_True))) {
    *why =
        "its gradient has a graph (create_graph=True), which .grad would lose; use "
        "torch.autograd.grad";
    return false;
  }
  if (!Call(grad, names.stride).equal(entry.stride_tuple)) {
    entry.copy(grad);
  } else if (entry.bytes >= kReleaseGilBytes) {
    const nb::gil_scoped_release release;
    kernels::Copy(entry.data, data, entry.bytes, store_);
  } else if (entry.bytes != 0) {
    std::memcpy(entry.data, data, entry.bytes);
  }
  return true;
}

std::vector<int> GradientSet::Finish() {
  if (!waiting_) RaiseIfError(set_->Close());
  waiting_ = true;
  WaitOptions options;
  options.keep_waiting = CheckSignals;
  Status status;
  {
    const nb::gil_scoped_release release;
    status = set_->Wait(options);
  }
  RaiseIfInterrupted();
  RaiseIfError(status);
  waiting_ = false;
  reduced_ = true;
  std::vector<int> received;
  for (size_t t = 0; t < entries_.size(); ++t) {
    if (!entries_[t].contributed && set_->contributors(static_cast<int>(t)) > 0) {
      received.push_back(static_cast<int>(t));
    }
    entries_[t].contributed = false;
  }
  return received;
}

void GradientSet::RaiseMismatches() const {
  for (int t = 0; t < set_->num_tensors(); ++t) RaiseIfError(set_->tensor_status(t));
}

std::vector<int> GradientSet::Absent() const {
  std::vector<int> absent;
  for (size_t t = 0; t < entries_.size(); ++t) {
    if (!entries_[t].contributed) absent.push_back(static_cast<int>(t));
  }
  return absent;
}

namespace {

// `invalid`: why this rank cannot take part, or empty.
std::shared_ptr<GradientSet> Declare(const std::shared_ptr<Session>& session, std::string name,
                                     const nb::list& tensors, int op, double prescale,
                                     double postscale, std::string invalid) {
  SetSpec spec;
  spec.name = std::move(name);
  spec.op = static_cast<ReduceOp>(op);
  spec.prescale = prescale;
  spec.postscale = postscale;
  if (!invalid.empty()) spec.invalid = Status::InvalidArgument(std::move(invalid));
  try {
    for (const nb::handle tensor : tensors) {
      SetTensor declared;
      declared.name = nb::cast<std::string>(tensor[0]);
      declared.shape = Shape::Of(nb::cast<std::vector<int64_t>>(tensor[1]));
      declared.dtype = DTypeOf(tensor[2]);
      spec.tensors.push_back(std::move(declared));
    }
  } catch (nb::python_error& error) {
    // The others wait for this rank's declaration, so it takes part with its error.
    if (spec.invalid.ok()) {
      spec.invalid = Status::Unsupported(Text(error.value()));
    }
    spec.tensors.clear();
  }
  WaitOptions options;
  options.keep_waiting = CheckSignals;
  const auto declare = [&] {
    const nb::gil_scoped_release release;
    return session->runtime().DeclareSet(spec, options);
  };
  Result<std::unique_ptr<Set>> set = declare();
  RaiseIfInterrupted();
  if (!set.ok()) Raise(set.status());
  return std::make_shared<GradientSet>(session, *std::move(set), spec.op == ReduceOp::kAverage);
}

}  // namespace

void RegisterGradients(nb::module_& module) {
  nb::class_<GradientSet>(module, "GradientSet", "The gradients of one optimizer.")
      .def("bind", &GradientSet::Bind)
      .def("set_begin", &GradientSet::SetBegin)
      .def("end_backward", &GradientSet::EndBackward)
      .def("contribute", &GradientSet::Contribute)
      .def("grad_tensor", &GradientSet::GradTensor)
      .def("absent", &GradientSet::Absent)
      .def("finish", &GradientSet::Finish)
      .def("raise_mismatches", &GradientSet::RaiseMismatches)
      .def("unfinished", &GradientSet::Unfinished)
      .def("renew", &GradientSet::Renew)
      .def("hook", [](const std::shared_ptr<GradientSet>& set, int t) { return new Hook(set, t); });
  nb::class_<Hook>(module, "Hook", "Called by autograd with a parameter.")
      .def("__call__", &Hook::operator());
  module.def("declare", &Declare, "Declares a set; collective.", nb::arg("session"),
             nb::arg("name"), nb::arg("tensors"), nb::arg("op"), nb::arg("prescale"),
             nb::arg("postscale"), nb::arg("invalid") = "");
}

}  // namespace ronde::python
