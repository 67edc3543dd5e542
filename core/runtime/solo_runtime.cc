#include "core/runtime/solo_runtime.h"

#include <unistd.h>

#include <cstring>

#include <fmt/format.h>

#include "core/runtime/solo_set.h"
#include "core/runtime/validate.h"

namespace ronde {

Result<std::unique_ptr<Runtime>> SoloRuntime::Create(const Config& config) {
  if (config.size != 1) {
    return Status::InvalidArgument(
        fmt::format("a job of size {} is not a job of size 1", config.size));
  }
  const Result<kernels::Isa> isa = kernels::ParseIsa(config.kernels);
  if (!isa.ok()) return isa.status();
  return std::unique_ptr<Runtime>(new SoloRuntime(config, *isa));
}

SoloRuntime::SoloRuntime(const Config& config, kernels::Isa isa)
    : config_(config), isa_(isa), pid_(getpid()), pool_(std::make_shared<WorkPool>()) {}

SoloRuntime::~SoloRuntime() {
  pool_->Close();
}

Status SoloRuntime::CheckUsable() const {
  if (getpid() != pid_) {
    return Status::NotInitialized(
        "this process was forked from a rank and is none itself: a forked child cannot "
        "communicate");
  }
  if (shut_down_.load(std::memory_order_relaxed)) {
    return Status::NotInitialized("the Runtime has been shut down");
  }
  return Status::Ok();
}

Result<Work> SoloRuntime::Submit(const Request& request,
                                 std::function<void(const Status&)> callback) {
  RONDE_RETURN_IF_ERROR(CheckUsable());
  RONDE_RETURN_IF_ERROR(ValidateName(request.name));
  WorkState* state = pool_->Take();
  Work work(state);
  state->Unref();  // Take's reference; the handle has its own
  state->Assign(request);
  Status status = ValidateRequest(request, rank(), size());
  if (status.ok()) status = Execute(state);
  works_.fetch_add(1, std::memory_order_relaxed);
  state->Finish(std::move(status));
  if (callback) callback(state->status);
  return work;
}

Status SoloRuntime::Wait(const Work& work, const WaitOptions&) {
  if (!work.valid()) return Status::InvalidArgument("wait: an empty Work, not one from Submit");
  return work.status();
}

Status SoloRuntime::Run(const Request& request, const WaitOptions&, Work* work) {
  Result<Work> submitted = Submit(request);
  if (!submitted.ok()) return submitted.status();
  Status status = submitted->status();
  if (work != nullptr) *work = *std::move(submitted);
  return status;
}

Status SoloRuntime::Execute(WorkState* work) {
  // Every kind gives each input back: all ranks' rows, the root's tensor and this rank's share are
  // one and the same.
  for (size_t i = 0; i < work->inputs.size(); ++i) {
    const Tensor& input = work->inputs[i];
    if (!work->outputs_given) {
      RONDE_RETURN_IF_ERROR(work->AllocateOutput(i, input.shape, input.view.dtype));
    }
    work->output_shapes[i] = input.shape;
    CopyScaled(input.view, work->outputs[i].data, work->op, work->prescale, work->postscale);
    bytes_.fetch_add(input.view.size_bytes(), std::memory_order_relaxed);
  }
  if (work->kind == OpKind::kAlltoall) {
    work->received_splits.assign(1, work->inputs[0].shape.dims[0]);
  }
  return Status::Ok();
}

void SoloRuntime::CopyScaled(const TensorView& in, void* out, ReduceOp op, double prescale,
                             double postscale) const {
  if (in.count == 0) return;
  if (prescale == 1.0 && postscale == 1.0) {
    if (in.data != out) std::memmove(out, in.data, static_cast<size_t>(in.size_bytes()));
    return;
  }
  const void* const src = in.data;
  kernels::ReduceArgs args;
  args.srcs = &src;
  args.num_srcs = 1;
  args.dsts = &out;
  args.num_dsts = 1;
  args.count = static_cast<size_t>(in.count);
  args.prescale = prescale;
  args.postscale = postscale;
  kernels::FindReduce(isa_, in.dtype, op)(args);
}

Result<std::unique_ptr<Set>> SoloRuntime::DeclareSet(const SetSpec& spec, const WaitOptions&) {
  RONDE_RETURN_IF_ERROR(CheckUsable());
  RONDE_RETURN_IF_ERROR(ValidateSetSpec(spec));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!set_names_.insert(spec.name).second) {
      return Status::InvalidArgument(
          fmt::format("set '{}': a set of this name is declared already", spec.name));
    }
  }
  auto set = std::make_unique<SoloSet>(this, spec);
  RONDE_RETURN_IF_ERROR(set->Allocate());
  return std::unique_ptr<Set>(std::move(set));
}

RuntimeStats SoloRuntime::stats() const {
  RuntimeStats stats;
  stats.works = works_.load(std::memory_order_relaxed);
  stats.bytes = bytes_.load(std::memory_order_relaxed);
  stats.rounds = rounds_.load(std::memory_order_relaxed);
  return stats;
}

}  // namespace ronde
