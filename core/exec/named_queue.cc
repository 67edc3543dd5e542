#include "core/exec/named_queue.h"

#include <utility>

#include "core/base/log.h"

namespace ronde {
namespace {

int64_t BytesOf(const WorkState& work) {
  int64_t bytes = 0;
  for (const Tensor& tensor : work.inputs) bytes += tensor.view.size_bytes();
  return bytes;
}

// May the two run as one collective?
bool Fusable(const WorkState& a, const WorkState& b) {
  return a.kind == OpKind::kAllreduce && b.kind == OpKind::kAllreduce && a.invalid.ok() &&
         b.invalid.ok() && a.op == b.op && a.prescale == b.prescale && a.postscale == b.postscale &&
         a.inputs[0].view.dtype == b.inputs[0].view.dtype && a.uniform() && b.uniform();
}

}  // namespace

NamedQueue::NamedQueue(Board board, int rank, int64_t fusion_bytes, Lane* lane,
                       const Doorbell* doorbell, AskFn ask, CompleteFn complete)
    : log_(std::move(board), rank),
      fusion_bytes_(fusion_bytes),
      lane_(lane),
      doorbell_(doorbell),
      ask_(std::move(ask)),
      complete_(std::move(complete)) {}

void NamedQueue::Add(WorkState* work) {
  const auto known = ids_.find(work->name);
  if (known != ids_.end()) {
    Announce(work, known->second);
    return;
  }
  asked_.emplace(work->name, work);
  ask_(work->name, ToDescription(ViewOf(*work)));
}

void NamedQueue::OnDecision(const std::string& name, const Status& status, uint32_t id, bool once) {
  const auto it = asked_.find(name);
  if (it == asked_.end()) return;  // failed meanwhile
  WorkState* work = it->second;
  asked_.erase(it);
  if (!status.ok()) {
    complete_(work, work->invalid.ok() ? status : work->invalid);
    return;
  }
  if (!once) ids_.emplace(name, id);
  Announce(work, id);
}

void NamedQueue::Announce(WorkState* work, uint32_t id) {
  work->id = id;
  announced_.emplace(id, work);
  log_.Announce(id);
  look_ = true;
}

// Claims what is complete, unless the lane is busy: what becomes complete meanwhile is claimed
// together afterwards, and fused (as a database groups its commits). Whoever completes an operation
// last and leaves it for this reason looks again when its lane is through.
void NamedQueue::ClaimComplete() {
  if (!look_ || !lane_->empty()) return;
  look_ = false;
  for (const auto& [id, work] : announced_) {
    if (log_.Complete(id)) ClaimBatch(work);
  }
}

void NamedQueue::ClaimBatch(WorkState* work) {
  if (!log_.Claim(work->id)) return;
  std::vector<uint32_t> claimed{work->id};
  int64_t bytes = BytesOf(*work);
  if (bytes <= fusion_bytes_) {
    for (const auto& [id, other] : announced_) {
      if (other == work || !Fusable(*work, *other)) continue;
      const int64_t more = BytesOf(*other);
      if (bytes + more > fusion_bytes_ || !log_.Complete(id) || !log_.Claim(id)) continue;
      claimed.push_back(id);
      bytes += more;
    }
  }
  log_.Append(claimed);
  doorbell_->RingOthers();
}

bool NamedQueue::Step() {
  // An entry of the log names an operation that every rank has announced, this one included.
  if (announced_.empty()) return false;
  ClaimComplete();
  bool progress = false;
  while (log_.Next(&batch_)) {
    progress = true;
    WorkState* first = nullptr;
    WorkState* last = nullptr;
    for (const uint32_t id : batch_) {
      const auto it = announced_.find(id);
      RONDE_CHECK(it != announced_.end());
      WorkState* work = it->second;
      announced_.erase(it);
      work->batch = nullptr;
      (first == nullptr ? first : last->batch) = work;
      last = work;
      if (on_once_consumed) on_once_consumed(id, log_.cursor());
    }
    lane_->Enqueue(first);
  }
  return progress;
}

void NamedQueue::Fail(const Status& error) {
  for (auto& [name, work] : asked_) complete_(work, error);
  asked_.clear();
  for (auto& [id, work] : announced_) complete_(work, error);
  announced_.clear();
}

}  // namespace ronde
