#include "core/exec/work_state.h"

#include <climits>
#include <cstdlib>

#include <fmt/format.h>

#include "core/base/futex.h"
#include "core/base/log.h"

namespace ronde {

void WorkState::Unref() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    const std::shared_ptr<WorkPool> pool = std::move(pool_);
    pool->Give(this);
  }
}

void WorkState::Assign(const Request& request) {
  kind = request.kind;
  name.assign(request.name);
  inputs.assign(request.inputs.begin(), request.inputs.end());
  outputs.assign(request.outputs.begin(), request.outputs.end());
  outputs_given = !request.outputs.empty();
  op = request.op;
  prescale = request.prescale;
  postscale = request.postscale;
  root = request.root;
  splits.assign(request.splits.begin(), request.splits.end());
  invalid = request.invalid;
  output_shapes.resize(inputs.size());
  output_memory.resize(inputs.size());
}

void WorkState::Finish(Status outcome) {
  RONDE_CHECK(!done());
  status = std::move(outcome);
  // Sequentially consistent with Park's increment of parked_ and its re-check of state_: one of the
  // two sees the other.
  state_.store(kDone, std::memory_order_seq_cst);
  if (parked_.load(std::memory_order_seq_cst) != 0)
    FutexWake(&state_, INT_MAX, FutexScope::kProcess);
}

bool WorkState::Park(int64_t timeout_ns) {
  bool woken = true;
  parked_.fetch_add(1, std::memory_order_seq_cst);
  if (state_.load(std::memory_order_seq_cst) == kPending) {
    woken = FutexWait(&state_, kPending, timeout_ns, FutexScope::kProcess);
  }
  parked_.fetch_sub(1, std::memory_order_seq_cst);
  return woken;
}

Status WorkState::AllocateOutput(size_t i, const Shape& shape, DType dtype) {
  constexpr size_t kAlignment = 64;
  const int64_t count = shape.count();
  const size_t bytes = static_cast<size_t>(count) * DTypeSize(dtype);
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, rounded == 0 ? kAlignment : rounded);
  if (memory == nullptr) {
    return Status::OutOfMemory(
        fmt::format("{}: no memory for an output of {} bytes", Describe(), bytes));
  }
  if (outputs.size() < inputs.size()) outputs.resize(inputs.size());
  output_memory[i] = std::shared_ptr<void>(memory, std::free);
  output_shapes[i] = shape;
  outputs[i] = TensorView{memory, count, dtype, {}};
  return Status::Ok();
}

bool WorkState::uniform() const {
  for (const Tensor& tensor : inputs) {
    if (tensor.view.dtype != inputs[0].view.dtype) return false;
  }
  return true;
}

std::string WorkState::Describe() const {
  if (name.empty()) return fmt::format("{} (unnamed)", OpKindName(kind));
  return fmt::format("{} '{}'", OpKindName(kind), name);
}

void WorkState::Clear() {
  state_.store(kPending, std::memory_order_relaxed);
  kind = OpKind::kBarrier;
  name.clear();
  inputs.clear();
  splits.clear();
  invalid = Status();
  callback = nullptr;
  outputs_given = false;
  status = Status();
  outputs.clear();
  output_shapes.clear();
  output_memory.clear();
  received_splits.clear();
  next = nullptr;
  batch = nullptr;
}

OpView ViewOf(const WorkState& work) {
  std::string_view reason;
  if (!work.invalid.ok()) {
    reason = work.invalid.message();
    const std::string prefix = work.Describe() + ": ";
    if (reason.starts_with(prefix)) reason.remove_prefix(prefix.size());
  }
  return {work.kind,          work.op,     work.root, work.prescale, work.postscale, work.inputs,
          work.inputs.size(), work.splits, reason};
}

WorkPool::~WorkPool() {
  Close();
}

WorkState* WorkPool::Take() {
  WorkState* work = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!spare_.empty()) {
      work = spare_.back();
      spare_.pop_back();
    }
  }
  if (work == nullptr) work = new WorkState;
  work->pool_ = shared_from_this();
  work->references_.store(1, std::memory_order_relaxed);
  return work;
}

void WorkPool::Give(WorkState* work) {
  work->Clear();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!closed_ && spare_.size() < kMaxSpare) {
      spare_.push_back(work);
      return;
    }
  }
  delete work;
}

void WorkPool::Close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  for (WorkState* work : spare_) delete work;
  spare_.clear();
}

Work::Work(WorkState* state) : state_(state) {
  if (state_ != nullptr) state_->Ref();
}

Work::Work(const Work& other) : Work(other.state_) {}

Work::~Work() {
  if (state_ != nullptr) state_->Unref();
}

bool Work::done() const {
  return state_ != nullptr && state_->done();
}

Status Work::status() const {
  return state_->status;
}

TensorView Work::output(int i) const {
  return state_->outputs[static_cast<size_t>(i)];
}

Shape Work::output_shape(int i) const {
  return state_->output_shapes[static_cast<size_t>(i)];
}

std::shared_ptr<void> Work::output_memory(int i) const {
  return state_->output_memory[static_cast<size_t>(i)];
}

std::span<const int64_t> Work::received_splits() const {
  return state_->received_splits;
}

}  // namespace ronde
