#include "bindings/python/src/collectives.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bindings/python/src/errors.h"
#include "bindings/python/src/nb.h"
#include "bindings/python/src/session.h"
#include "bindings/python/src/tensors.h"

namespace ronde::python {
namespace {

// The Python arguments of one operation, see Session.run in ronde/_core.pyi.
struct Arguments {
  int kind;
  nb::handle name;     // str or None
  nb::list inputs;     // tensors
  nb::handle outputs;  // list of tensors, or None: the core allocates
  nb::handle op;       // ReduceOp
  nb::handle prescale;
  nb::handle postscale;
  nb::handle root;
  nb::handle splits;   // list of int, or None
  nb::handle invalid;  // str: an error that Python found, or None
};

// A Request and what its spans refer to. Lives on the stack of one call. Whatever is wrong with an
// argument becomes request.invalid, so that the operation fails on every rank instead of leaving
// the others waiting; only a name that is no string raises here, since nobody could match it.
class Call {
 public:
  explicit Call(const Arguments& a) {
    request_.kind = static_cast<OpKind>(a.kind);
    ReadName(a.name);
    if (!a.invalid.is_none()) Reject(Status::InvalidArgument(nb::cast<const char*>(a.invalid)));
    ReadTensors(a.inputs, a.outputs);
    ReadOperator(a.op);
    request_.prescale = ReadDouble(a.prescale, "prescale_factor");
    request_.postscale = ReadDouble(a.postscale, "postscale_factor");
    const int64_t root = ReadInt(a.root, "root_rank");
    request_.root = static_cast<int>(root);
    if (request_.root != root) RejectType(a.root, "root_rank", "a rank");
    if (!a.splits.is_none()) ReadSplits(a.splits);
  }

  const Request& request() const { return request_; }

 private:
  void ReadName(nb::handle name) {
    if (name.is_none()) return;
    Py_ssize_t bytes = 0;
    const char* text = PyUnicode_AsUTF8AndSize(name.ptr(), &bytes);
    if (text == nullptr) throw nb::python_error();
    request_.name = {text, static_cast<size_t>(bytes)};
  }

  // Keeps the first error, with the operation before it.
  void Reject(const Status& status) {
    if (!request_.invalid.ok()) return;
    std::string who(OpKindName(request_.kind));
    who += request_.name.empty() ? " (unnamed)" : fmt::format(" '{}'", request_.name);
    request_.invalid = Status(status.code(), fmt::format("{}: {}", who, status.message()));
  }

  void ReadTensors(const nb::list& inputs, nb::handle outputs) {
    const size_t count = inputs.size();
    inputs_.resize(count);
    const bool given = !outputs.is_none();
    if (given) outputs_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const nb::handle input = inputs[i];
      const nb::object output = given ? nb::object(outputs[i]) : nb::object();
      const bool in_place = given && output.is(input);
      Check(i, ReadTensor(input, in_place, &inputs_[i]));
      if (in_place) {
        outputs_[i] = inputs_[i].view;
      } else if (given && request_.invalid.ok()) {
        Tensor tensor;
        Check(i, ReadTensor(output, true, &tensor));
        outputs_[i] = tensor.view;
      }
    }
    request_.inputs = inputs_;
    request_.outputs = outputs_;
  }

  void Check(size_t i, const Status& status) {
    if (status.ok()) return;
    Reject(Status(status.code(), fmt::format("tensor {} {}", i, status.message())));
    inputs_[i] = Tensor();
  }

  void ReadOperator(nb::handle op) {
    int64_t value = -1;
    if (nb::try_cast(op, value) && value >= 0 && value < kNumReduceOps) {
      request_.op = static_cast<ReduceOp>(value);
    } else {
      RejectType(op, "op", "Average, Sum, Min, Max or Product");
    }
  }

  int64_t ReadInt(nb::handle value, const char* what) {
    int64_t number = 0;
    if (!nb::try_cast(value, number)) RejectType(value, what, "an integer");
    return number;
  }

  double ReadDouble(nb::handle value, const char* what) {
    double number = 1;
    if (!nb::try_cast(value, number)) RejectType(value, what, "a number");
    return number;
  }

  void ReadSplits(nb::handle splits) {
    if (!PyList_Check(splits.ptr())) {
      RejectType(splits, "splits", "a sequence of integers");
      return;
    }
    for (const nb::handle value : nb::borrow<nb::list>(splits)) {
      splits_.push_back(ReadInt(value, "splits"));
    }
    request_.splits = splits_;
  }

  void RejectType(nb::handle value, const char* what, const char* allowed) {
    Reject(Status::InvalidArgument(
        fmt::format("{} is {}; must be {}", what, nb::repr(value).c_str(), allowed)));
  }

  Request request_;
  std::vector<Tensor> inputs_;
  std::vector<TensorView> outputs_;
  std::vector<int64_t> splits_;
};

nb::object BuffersOf(const Arguments& a) {
  return nb::make_tuple(a.inputs, a.outputs);
}

nb::object NewHandle(const std::shared_ptr<Session>& session, Work work, nb::object buffers) {
  auto* handle = new Handle(session, std::move(work), std::move(buffers));
  return nb::cast(handle, nb::rv_policy::take_ownership);
}

// Blocking. None when the caller supplied the outputs, else the handle that has them.
nb::object Run(const std::shared_ptr<Session>& session, const Arguments& a) {
  session->Sweep();
  const Call call(a);
  WaitOptions options;
  options.keep_waiting = CheckSignals;
  Work work;
  Status status;
  {
    const nb::gil_scoped_release release;
    status = session->runtime().Run(call.request(), options, &work);
  }
  // Interrupted or timed out: it is in flight, on memory that Python may be about to free.
  if (work.valid()) session->Park(work, BuffersOf(a));
  RaiseIfInterrupted();
  RaiseIfError(status);
  if (!a.outputs.is_none() || !work.valid()) return nb::none();
  return NewHandle(session, std::move(work), nb::none());
}

nb::object Submit(const std::shared_ptr<Session>& session, const Arguments& a) {
  session->Sweep();
  const Call call(a);
  Result<Work> work = session->runtime().Submit(call.request());
  if (!work.ok()) Raise(work.status());
  return NewHandle(session, *std::move(work), BuffersOf(a));
}

template <nb::object (*Function)(const std::shared_ptr<Session>&, const Arguments&)>
nb::object Entry(const std::shared_ptr<Session>& session, int kind, nb::handle name,
                 const nb::list& inputs, nb::handle outputs, nb::handle op, nb::handle prescale,
                 nb::handle postscale, nb::handle root, nb::handle splits, nb::handle invalid) {
  return Function(session,
                  {kind, name, inputs, outputs, op, prescale, postscale, root, splits, invalid});
}

}  // namespace

void RegisterCollectives(nb::module_& module) {
  module.def("run", &Entry<Run>, nb::arg("session"), nb::arg("kind"), nb::arg("name").none(),
             nb::arg("inputs"), nb::arg("outputs").none(), nb::arg("op"), nb::arg("prescale"),
             nb::arg("postscale"), nb::arg("root"), nb::arg("splits").none(),
             nb::arg("invalid").none(), "Starts an operation and waits for it.");
  module.def("submit", &Entry<Submit>, nb::arg("session"), nb::arg("kind"), nb::arg("name").none(),
             nb::arg("inputs"), nb::arg("outputs").none(), nb::arg("op"), nb::arg("prescale"),
             nb::arg("postscale"), nb::arg("root"), nb::arg("splits").none(),
             nb::arg("invalid").none(), "Starts an operation.");
}

}  // namespace ronde::python
