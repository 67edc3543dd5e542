#include "core/runtime/solo_set.h"

#include <cstdlib>

#include <fmt/format.h>

#include "core/runtime/solo_runtime.h"

namespace ronde {
namespace {

constexpr int64_t kAlignment = 64;

}  // namespace

SoloSet::SoloSet(SoloRuntime* runtime, const SetSpec& spec)
    : runtime_(runtime),
      spec_(spec),
      buckets_(spec.tensors.size(), 0),
      taken_(spec.tensors.size(), false),
      open_(spec.tensors.size()),
      last_(spec.tensors.size()) {}

SoloSet::~SoloSet() {
  const std::lock_guard<std::mutex> lock(runtime_->mutex_);
  runtime_->set_names_.erase(spec_.name);
}

Status SoloSet::Allocate() {
  int64_t bytes = 0;
  for (const SetTensor& tensor : spec_.tensors) {
    offsets_.push_back(bytes);
    const int64_t size = tensor.shape.count() * static_cast<int64_t>(DTypeSize(tensor.dtype));
    bytes += (size + kAlignment - 1) / kAlignment * kAlignment;
  }
  void* memory = std::aligned_alloc(kAlignment, static_cast<size_t>(bytes + kAlignment));
  if (memory == nullptr) {
    return Status::OutOfMemory(
        fmt::format("set '{}': no memory for slots of {} bytes", spec_.name, bytes));
  }
  memory_ = std::shared_ptr<void>(memory, std::free);
  return Status::Ok();
}

TensorView SoloSet::slot(int t) const {
  const SetTensor& tensor = spec_.tensors[Index(t)];
  return {static_cast<char*>(memory_.get()) + offsets_[Index(t)], tensor.shape.count(),
          tensor.dtype, Device{}};
}

Status SoloSet::Take(int t) {
  RONDE_RETURN_IF_ERROR(runtime_->CheckUsable());
  if (t < 0 || t >= num_tensors()) {
    return Status::InvalidArgument(fmt::format(
        "set '{}': tensor {} does not exist; allowed: 0 to {}", spec_.name, t, num_tensors() - 1));
  }
  if (taken_[Index(t)]) {
    return Status::InvalidArgument(
        fmt::format("set '{}': tensor '{}' was marked already in round "
                    "{}",
                    spec_.name, spec_.tensors[Index(t)].name, round_));
  }
  taken_[Index(t)] = true;
  round_open_ = true;
  return Status::Ok();
}

Status SoloSet::Mark(int t) {
  RONDE_RETURN_IF_ERROR(Take(t));
  open_[Index(t)].contributors = 1;
  return Status::Ok();
}

Status SoloSet::Poison(int t, std::string why) {
  RONDE_RETURN_IF_ERROR(Take(t));
  open_[Index(t)].status = Status::Mismatch(fmt::format(
      "set '{}', tensor '{}': rank 0: {}", spec_.name, spec_.tensors[Index(t)].name, why));
  return Status::Ok();
}

Status SoloSet::Close() {
  RONDE_RETURN_IF_ERROR(runtime_->CheckUsable());
  for (int t = 0; t < num_tensors(); ++t) {
    if (open_[Index(t)].contributors > 0) {
      const TensorView view = slot(t);
      runtime_->CopyScaled(view, view.data, spec_.op, spec_.prescale, spec_.postscale);
    }
  }
  last_ = std::move(open_);
  open_.assign(spec_.tensors.size(), Outcome());
  taken_.assign(spec_.tensors.size(), false);
  round_open_ = false;
  ++round_;
  runtime_->rounds_.fetch_add(1, std::memory_order_relaxed);
  return Status::Ok();
}

Status SoloSet::Wait(const WaitOptions&) {
  return runtime_->CheckUsable();
}

}  // namespace ronde
