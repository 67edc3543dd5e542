#include "core/exec/lane.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "core/base/log.h"
#include "core/control/description.h"

namespace ronde {
namespace {

// Does dimension 0 of each rank's tensor count for itself?
bool SizesDiffer(OpKind kind) {
  return kind == OpKind::kAllgather || kind == OpKind::kAlltoall;
}

// Has every rank's result the shape of its input?
bool SameShape(OpKind kind) {
  return kind == OpKind::kAllreduce || kind == OpKind::kBroadcast;
}

int64_t TotalBytes(std::span<const Tensor> tensors) {
  int64_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += tensor.view.size_bytes();
  return bytes;
}

Shape WithRows(Shape shape, int64_t rows) {
  shape.dims[0] = rows;
  return shape;
}

}  // namespace

Lane::Lane(int index, const BackendContext& context, const RuleTable* rules,
           std::unique_ptr<BackendLane> backend, CompleteFn complete, FailGroupFn fail_group)
    : index_(index),
      context_(context),
      rules_(rules),
      backend_(std::move(backend)),
      complete_(std::move(complete)),
      fail_group_(std::move(fail_group)) {}

void Lane::Enqueue(WorkState* work) {
  work->next = nullptr;
  (head_ == nullptr ? head_ : tail_->next) = work;
  tail_ = work;
}

bool Lane::Step() {
  if (head_ == nullptr) return false;
  switch (state_) {
    case State::kNew:
      Post();
      return true;
    case State::kInline:
      return false;  // what was enqueued meanwhile comes after the posted operation
    case State::kPosted:
      if (!AllPosted()) return false;
      Match();
      return true;
    case State::kRunning: {
      const Progress progress = backend_->Poll();
      if (progress == Progress::kDone) FinishPart();
      return progress != Progress::kIdle;
    }
  }
  return false;
}

bool Lane::whole_group() const {
  switch (head_->kind) {
    case OpKind::kAllreduce:
    case OpKind::kBroadcast:
      return head_->uniform();
    case OpKind::kBarrier:
      return true;
    case OpKind::kAllgather:
    case OpKind::kReducescatter:
    case OpKind::kAlltoall:
      return false;
  }
  return true;
}

void Lane::SetView() {
  view_ = ViewOf(*head_);
  const std::span<const Tensor> inputs = head_->inputs;
  const std::span<const Tensor> part = inputs.subspan(part_, std::min<size_t>(1, inputs.size()));
  if (head_->batch != nullptr) {
    tensors_.clear();
    for (const WorkState* work = head_; work != nullptr; work = work->batch) {
      tensors_.insert(tensors_.end(), work->inputs.begin(), work->inputs.end());
    }
    view_.tensors = tensors_;
    view_.group_size = tensors_.size();
  } else if (!SameShape(head_->kind)) {
    view_.tensors = part;
  }
  carried_ = whole_group() ? view_.tensors : part;
  if (head_->kind == OpKind::kAlltoall && head_->splits.empty() && !part.empty()) {
    equal_splits_.assign(static_cast<size_t>(context_.board.num_ranks()),
                         part[0].shape.dims[0] / context_.board.num_ranks());
    view_.splits = equal_splits_;
  }
}

uint64_t Lane::ViewSignature() const {
  if (head_ == nullptr || head_->batch == nullptr) return Signature(view_);
  // Each work for itself: the ranks may disagree about one that another rank found fit to be fused.
  uint64_t hash = 1;
  for (const WorkState* work = head_; work != nullptr; work = work->batch) {
    const uint64_t signature = Signature(ViewOf(*work));
    if (signature == 0) return 0;
    hash = hash * 0x9e3779b97f4a7c15 + signature;
  }
  return hash | 1;
}

void Lane::Post() {
  SetView();
  PublishCell(false);
  state_ = State::kPosted;
}

void Lane::PublishCell(bool polled) {
  const uint64_t signature = ViewSignature();
  CellHeader* cell = context_.board.cell(index_, seq_, context_.rank);
  const int64_t bytes = TotalBytes(carried_);
  // Where sizes differ, the largest one decides on the schedule, and nobody knows it yet.
  const bool maybe_oneshot =
      rules_->Find(view_.kind, bytes).schedule == Schedule::kOneShot ||
      (SizesDiffer(view_.kind) && bytes <= static_cast<int64_t>(kCellPayload));
  const bool carries = signature != 0 && maybe_oneshot &&
                       !(view_.kind == OpKind::kBroadcast && view_.root != context_.rank);
  if (carries) {
    std::byte* payload = context_.board.payload(index_, seq_, context_.rank);
    for (const Tensor& tensor : carried_) {
      const auto size = static_cast<size_t>(tensor.view.size_bytes());
      if (size != 0) std::memcpy(payload, tensor.view.data, size);
      payload += size;
    }
  }
  OpView described = view_;
  // Where tensors go one by one, those to come are described too: a mismatch in the group shows at
  // its first one.
  if (head_ != nullptr && !whole_group()) {
    described.tensors = std::span(head_->inputs).subspan(std::min(part_, head_->inputs.size()));
  }
  EncodeDescription(described, context_.board.descriptor(index_, seq_, context_.rank));
  cell->signature = signature;
  cell->hint = backend_->Hint();
  cell->polled.store(polled ? 1 : 0, std::memory_order_relaxed);
  cell->seq.store(seq_ + 1, std::memory_order_seq_cst);
  ++posted_;
  context_.recorder->Record(Hop::kPosted, static_cast<uint32_t>(index_), seq_);
  // If this was the last cell, the others may be asleep.
  if (!AllPosted()) return;
  for (int r = 0; r < context_.board.num_ranks(); ++r) {
    if (r == context_.rank) continue;
    const CellHeader* theirs = context_.board.cell(index_, seq_, r);
    if (theirs->polled.load(std::memory_order_seq_cst) == 0) context_.doorbell->Ring(r);
  }
}

void Lane::StopPolling() {
  context_.board.cell(index_, seq_, context_.rank)->polled.store(0, std::memory_order_seq_cst);
}

// The other ranks have read the cell that this one writes next: it is fetched back while the
// current operation ends.
void Lane::PrefetchNextCell() const {
#if defined(__GNUC__)
  __builtin_prefetch(context_.board.cell(index_, seq_ + 1, context_.rank), 1);
#endif
}

bool Lane::AllPosted() const {
  for (int r = 0; r < context_.board.num_ranks(); ++r) {
    if (context_.board.cell(index_, seq_, r)->seq.load(std::memory_order_seq_cst) != seq_ + 1) {
      return false;
    }
  }
  return true;
}

std::vector<int> Lane::Missing() const {
  if (state_ == State::kRunning) return backend_->Missing();
  std::vector<int> missing;
  if (state_ == State::kNew) return missing;
  for (int r = 0; r < context_.board.num_ranks(); ++r) {
    if (context_.board.cell(index_, seq_, r)->seq.load(std::memory_order_seq_cst) != seq_ + 1) {
      missing.push_back(r);
    }
  }
  return missing;
}

bool Lane::SignaturesAgree() const {
  const uint64_t mine = context_.board.cell(index_, seq_, context_.rank)->signature;
  if (mine == 0) return false;
  for (int r = 0; r < context_.board.num_ranks(); ++r) {
    if (context_.board.cell(index_, seq_, r)->signature != mine) return false;
  }
  return true;
}

void Lane::PostInline(const OpView& view) {
  view_ = view;
  carried_ = view.tensors;
  PublishCell(true);
  state_ = State::kInline;
}

bool Lane::FinishInline(const TensorView& output) {
  PrefetchNextCell();
  if (!SignaturesAgree()) return false;
  if (view_.kind != OpKind::kBarrier) {
    Collective collective = MakeCollective(carried_[0].view.size_bytes());
    collective.inputs = {&carried_[0].view, 1};
    collective.outputs = {&output, 1};
    backend_->Start(collective);
    RONDE_CHECK(backend_->Poll() == Progress::kDone);
  }
  ++seq_;
  state_ = State::kNew;
  return true;
}

void Lane::Adopt(WorkState* work) {
  work->next = head_;
  if (head_ == nullptr) tail_ = work;
  head_ = work;
  SetView();
  state_ = State::kPosted;
}

void Lane::Match() {
  if (!SignaturesAgree()) {
    Reject();
    return;
  }
  if (head_->kind == OpKind::kBarrier) {
    FinishPart();
    return;
  }
  const Status begun = Begin();
  // Other ranks have begun by now and count on this one: its failure is the group's.
  if (!begun.ok()) fail_group_(begun);
}

void Lane::Reject() {
  // Which work of a batch is at fault shows when they run one by one; every rank sees the same
  // cells, so all do the same.
  if (head_->batch != nullptr) {
    Unfuse();
    return;
  }
  std::vector<Description> descriptions;
  for (int r = 0; r < context_.board.num_ranks(); ++r) {
    descriptions.push_back(DecodeDescription(context_.board.descriptor(index_, seq_, r)));
  }
  Status status = CompareDescriptions(head_->Describe(), descriptions);
  if (status.ok()) {
    status = Status::Mismatch(
        fmt::format("{}: the ranks' tensors after the first {} of the group differ",
                    head_->Describe(), kMaxDescribedTensors));
  }
  ++seq_;
  // The rank that gave bad arguments hears of its own.
  FinishHead(head_->invalid.ok() ? status : head_->invalid);
}

void Lane::Unfuse() {
  ++seq_;
  WorkState* const rest = head_->next;
  WorkState* last = nullptr;
  for (WorkState* work = head_; work != nullptr; work = last->next) {
    last = work;
    work->next = std::exchange(work->batch, nullptr);
  }
  last->next = rest;
  if (rest == nullptr) tail_ = last;
  state_ = State::kNew;
}

int64_t Lane::AgreedBytes() const {
  if (!SizesDiffer(view_.kind)) return TotalBytes(carried_);
  int64_t bytes = 0;
  const auto element = static_cast<int64_t>(DTypeSize(carried_[0].view.dtype));
  for (int r = 0; r < context_.board.num_ranks(); ++r) {
    const Shape shape = EncodedShape(context_.board.descriptor(index_, seq_, r), 0);
    bytes = std::max(bytes, shape.count() * element);
  }
  return bytes;
}

Collective Lane::MakeCollective(int64_t bytes) const {
  const Rule& rule = rules_->Find(view_.kind, bytes);
  Collective collective;
  collective.kind = view_.kind;
  collective.dtype = carried_[0].view.dtype;
  collective.op = view_.op;
  collective.prescale = view_.prescale;
  collective.postscale = view_.postscale;
  collective.root = view_.root;
  collective.schedule = rule.schedule;
  collective.chunk_bytes = rule.chunk_bytes;
  collective.bytes = bytes;
  collective.seq = seq_;
  collective.hint = context_.board.cell(index_, seq_, 0)->hint;
  return collective;
}

Status Lane::Begin() {
  Collective collective = MakeCollective(AgreedBytes());
  inputs_.clear();
  outputs_.clear();
  counts_.clear();
  for (const Tensor& tensor : carried_) inputs_.push_back(tensor.view);
  Status status;
  if (whole_group()) {
    for (WorkState* work = head_; work != nullptr; work = work->batch) {
      for (size_t i = 0; i < work->inputs.size(); ++i) {
        if (!work->outputs_given && status.ok()) {
          status = work->AllocateOutput(i, work->inputs[i].shape, work->inputs[i].view.dtype);
        }
        work->output_shapes[i] = work->inputs[i].shape;
        if (i < work->outputs.size()) outputs_.push_back(work->outputs[i]);
      }
    }
  } else {
    status = PrepareGathered();
  }
  if (!status.ok()) return status;
  collective.inputs = inputs_;
  collective.outputs = outputs_;
  collective.counts = counts_;
  context_.recorder->Record(Hop::kStarted, static_cast<uint32_t>(index_), seq_);
  backend_->Start(collective);
  state_ = State::kRunning;
  return Status::Ok();
}

// Sizes and output of a tensor that goes by itself: of allgather, reducescatter and alltoall, and
// of a group of several types.
Status Lane::PrepareGathered() {
  WorkState* work = head_;
  const Tensor& input = work->inputs[part_];
  const int n = context_.board.num_ranks();
  const int me = context_.rank;
  const int64_t row = input.shape.row_count();
  int64_t rows = 0;
  switch (work->kind) {
    case OpKind::kAllgather:
      for (int r = 0; r < n; ++r) {
        const Shape theirs = EncodedShape(context_.board.descriptor(index_, seq_, r), 0);
        counts_.push_back(theirs.count());
        rows += theirs.dims[0];
      }
      break;
    case OpKind::kReducescatter:
      for (int r = 0; r < n; ++r) {
        const int64_t share = input.shape.dims[0] / n + (r < input.shape.dims[0] % n ? 1 : 0);
        counts_.push_back(share * row);
        if (r == me) rows = share;
      }
      break;
    case OpKind::kAlltoall:
      work->received_splits.assign(static_cast<size_t>(n), 0);
      for (int from = 0; from < n; ++from) {
        const std::byte* descriptor = context_.board.descriptor(index_, seq_, from);
        for (int to = 0; to < n; ++to) {
          const int64_t split = EncodedSplit(descriptor, static_cast<size_t>(to));
          counts_.push_back(split * row);
          if (to == me) work->received_splits[static_cast<size_t>(from)] = split;
        }
        rows += work->received_splits[static_cast<size_t>(from)];
      }
      break;
    case OpKind::kAllreduce:
    case OpKind::kBroadcast:
    case OpKind::kBarrier:
      break;
  }
  const Shape shape = SameShape(work->kind) ? input.shape : WithRows(input.shape, rows);
  const bool fits = work->outputs_given && work->outputs[part_].count == shape.count();
  if (work->outputs_given && !fits) {
    late_error_ = Status::InvalidArgument(fmt::format("{}: output {} has {} elements; must have {}",
                                                      work->Describe(), part_,
                                                      work->outputs[part_].count, shape.count()));
  }
  // The other ranks count on this one's part, so it takes part even when the caller's output does
  // not fit.
  if (!fits) RONDE_RETURN_IF_ERROR(work->AllocateOutput(part_, shape, input.view.dtype));
  work->output_shapes[part_] = shape;
  outputs_.push_back(work->outputs[part_]);
  return Status::Ok();
}

void Lane::FinishPart() {
  ++seq_;
  if (!whole_group() && ++part_ < head_->inputs.size()) {
    state_ = State::kNew;
    return;
  }
  FinishHead(late_error_);
}

void Lane::FinishHead(const Status& status) {
  const Status outcome = status;
  WorkState* work = head_;
  head_ = work->next;
  if (head_ == nullptr) tail_ = nullptr;
  state_ = State::kNew;
  part_ = 0;
  late_error_ = Status();
  while (work != nullptr) {
    WorkState* const next = std::exchange(work->batch, nullptr);
    complete_(work, outcome);
    work = next;
  }
}

void Lane::Fail(const Status& error) {
  if (state_ == State::kRunning) backend_->Cancel();
  while (head_ != nullptr) FinishHead(error);
}

}  // namespace ronde
