// The C ABI over ronde::Runtime: converts arguments, keeps the last error's text per thread.
#include <array>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "ronde/ronde.h"
#include "ronde/runtime.h"

struct ronde_runtime {
  std::unique_ptr<ronde::Runtime> impl;
};

struct ronde_work {
  ronde::Work impl;
};

namespace {

using ronde::DType;
using ronde::OpKind;
using ronde::ReduceOp;
using ronde::Request;
using ronde::Shape;
using ronde::Status;
using ronde::Tensor;
using ronde::TensorView;

thread_local std::string last_error;

ronde_code Report(const Status& status) {
  last_error.assign(status.message());
  return static_cast<ronde_code>(status.code());
}

Status NullRuntime() {
  return Status::NotInitialized("the runtime is NULL; call ronde_open first");
}

// One tensor's request, with the storage that its spans refer to. Lives on the stack of one call.
// Arguments that C cannot keep from being wrong become request.invalid, so that the operation fails
// on every rank.
class Call {
 public:
  Call(OpKind kind, const char* name, ronde_dtype dtype) {
    request_.kind = kind;
    if (name != nullptr) request_.name = name;
    if (static_cast<unsigned>(dtype) < ronde::kNumDTypes) {
      dtype_ = static_cast<DType>(dtype);
    } else {
      Reject("dtype", static_cast<int>(dtype), ronde::kNumDTypes - 1);
    }
  }

  void Op(ronde_op op) {
    if (static_cast<unsigned>(op) < ronde::kNumReduceOps) {
      request_.op = static_cast<ReduceOp>(op);
    } else {
      Reject("op", static_cast<int>(op), ronde::kNumReduceOps - 1);
    }
  }

  void Root(int root) { request_.root = root; }

  // `rows` rows of `count` elements each; the output has `out_count`.
  void Buffers(const void* send, void* recv, int64_t rows, int64_t count, int64_t out_rows) {
    const std::array<int64_t, 2> dims = {rows, count};
    input_.shape = Shape::Of(dims);
    // const_cast: a view has one pointer type; inputs are only read.
    input_.view = {const_cast<void*>(send), Product(rows, count), dtype_, {}};
    output_ = {recv, Product(out_rows, count), dtype_, {}};
    request_.inputs = {&input_, 1};
    request_.outputs = {&output_, 1};
  }

  const Request& request() const { return request_; }

 private:
  void Reject(const char* what, int value, int max) {
    request_.invalid =
        Status::InvalidArgument(fmt::format("{} is {}; must be 0 to {}", what, value, max));
  }

  // Of counts that exceed 63 bits nothing is computed: the shape's own check reports them.
  static int64_t Product(int64_t rows, int64_t count) {
    int64_t product = 0;
    return __builtin_mul_overflow(rows, count, &product) ? -1 : product;
  }

  DType dtype_ = DType::kUint8;
  Tensor input_;
  TensorView output_;
  Request request_;
};

ronde_code Run(ronde_runtime* runtime, const Call& call) {
  return Report(runtime->impl->Run(call.request()));
}

}  // namespace

extern "C" {

const char* ronde_version(void) {
  return RONDE_VERSION;
}

const char* ronde_last_error(void) {
  return last_error.c_str();
}

ronde_code ronde_open(ronde_runtime** out) {
  if (out == nullptr) return Report(Status::InvalidArgument("out is NULL"));
  *out = nullptr;
  const ronde::Result<ronde::Config> config = ronde::Config::FromEnvironment();
  if (!config.ok()) return Report(config.status());
  ronde::Result<std::unique_ptr<ronde::Runtime>> runtime = ronde::Open(*config);
  if (!runtime.ok()) return Report(runtime.status());
  *out = new ronde_runtime{*std::move(runtime)};
  return Report(Status::Ok());
}

void ronde_close(ronde_runtime* runtime) {
  delete runtime;
}

int ronde_rank(const ronde_runtime* runtime) {
  return runtime->impl->rank();
}

int ronde_size(const ronde_runtime* runtime) {
  return runtime->impl->size();
}

int ronde_local_rank(const ronde_runtime* runtime) {
  return runtime->impl->local_rank();
}

int ronde_local_size(const ronde_runtime* runtime) {
  return runtime->impl->local_size();
}

ronde_code ronde_allreduce(ronde_runtime* runtime, const void* send, void* recv, int64_t count,
                           ronde_dtype dtype, ronde_op op, const char* name) {
  if (runtime == nullptr) return Report(NullRuntime());
  Call call(OpKind::kAllreduce, name, dtype);
  call.Op(op);
  call.Buffers(send, recv, 1, count, 1);
  return Run(runtime, call);
}

ronde_code ronde_broadcast(ronde_runtime* runtime, void* buffer, int64_t count, ronde_dtype dtype,
                           int root, const char* name) {
  if (runtime == nullptr) return Report(NullRuntime());
  Call call(OpKind::kBroadcast, name, dtype);
  call.Root(root);
  call.Buffers(buffer, buffer, 1, count, 1);
  return Run(runtime, call);
}

ronde_code ronde_allgather(ronde_runtime* runtime, const void* send, void* recv, int64_t count,
                           ronde_dtype dtype, const char* name) {
  if (runtime == nullptr) return Report(NullRuntime());
  Call call(OpKind::kAllgather, name, dtype);
  call.Buffers(send, recv, 1, count, runtime->impl->size());
  return Run(runtime, call);
}

ronde_code ronde_reducescatter(ronde_runtime* runtime, const void* send, void* recv,
                               int64_t recv_count, ronde_dtype dtype, ronde_op op,
                               const char* name) {
  if (runtime == nullptr) return Report(NullRuntime());
  Call call(OpKind::kReducescatter, name, dtype);
  call.Op(op);
  call.Buffers(send, recv, runtime->impl->size(), recv_count, 1);
  return Run(runtime, call);
}

ronde_code ronde_alltoall(ronde_runtime* runtime, const void* send, void* recv, int64_t count,
                          ronde_dtype dtype, const char* name) {
  if (runtime == nullptr) return Report(NullRuntime());
  Call call(OpKind::kAlltoall, name, dtype);
  call.Buffers(send, recv, runtime->impl->size(), count, runtime->impl->size());
  return Run(runtime, call);
}

ronde_code ronde_barrier(ronde_runtime* runtime) {
  if (runtime == nullptr) return Report(NullRuntime());
  Request request;
  request.kind = OpKind::kBarrier;
  return Report(runtime->impl->Run(request));
}

ronde_code ronde_allreduce_start(ronde_runtime* runtime, const void* send, void* recv,
                                 int64_t count, ronde_dtype dtype, ronde_op op, const char* name,
                                 ronde_work** out) {
  if (runtime == nullptr) return Report(NullRuntime());
  if (out == nullptr) return Report(Status::InvalidArgument("out is NULL"));
  *out = nullptr;
  Call call(OpKind::kAllreduce, name, dtype);
  call.Op(op);
  call.Buffers(send, recv, 1, count, 1);
  ronde::Result<ronde::Work> work = runtime->impl->Submit(call.request());
  if (!work.ok()) return Report(work.status());
  *out = new ronde_work{*std::move(work)};
  return Report(Status::Ok());
}

int ronde_test(ronde_runtime* runtime, ronde_work* work) {
  return runtime->impl->Poll(work->impl) ? 1 : 0;
}

ronde_code ronde_wait(ronde_runtime* runtime, ronde_work* work, int64_t timeout_ms) {
  if (runtime == nullptr) return Report(NullRuntime());
  if (work == nullptr) return Report(Status::InvalidArgument("work is NULL"));
  ronde::WaitOptions options;
  options.timeout_ms = timeout_ms;
  const Status status = runtime->impl->Wait(work->impl, options);
  // A caller cannot tell the two timeouts apart, so with timeout_ms neither of them frees.
  const bool keep = timeout_ms >= 0 && status.code() == ronde::Code::kTimeout;
  if (!keep) delete work;
  return Report(status);
}

}  // extern "C"
