#include "core/exec/arena_set.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "core/base/clock.h"
#include "core/control/description.h"
#include "core/kernels/reduce.h"

namespace ronde {
namespace {

constexpr size_t RoundUp(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

size_t SetSegment::Bytes(int num_ranks, size_t num_buckets, size_t num_tensors) {
  const auto n = static_cast<size_t>(num_ranks);
  return n * num_buckets * sizeof(BucketLine) +
         2 * n * (RoundUp(num_tensors, kLine) + kPoisonBytes) + kLine;
}

std::byte* SetSegment::TextBase() const {
  return mapping_->data() + num_ranks_ * num_buckets_ * sizeof(BucketLine);
}
uint8_t* SetSegment::presence(int r, uint64_t round) const {
  const size_t row = (round & 1) * num_ranks_ + static_cast<size_t>(r);
  return reinterpret_cast<uint8_t*>(TextBase()) + row * RoundUp(num_tensors_, kLine);
}
char* SetSegment::poison_text(int r, uint64_t round) const {
  const size_t row = (round & 1) * num_ranks_ + static_cast<size_t>(r);
  return reinterpret_cast<char*>(TextBase()) + 2 * num_ranks_ * RoundUp(num_tensors_, kLine) +
         row * kPoisonBytes;
}

// Entries "TENSOR why\0", after the last one another \0.
void SetSegment::AddPoison(int r, uint64_t round, size_t t, std::string_view why,
                           size_t* used) const {
  const std::string entry = fmt::format("{} {}", t, why.substr(0, why.find('\0')));
  const size_t room = kPoisonBytes - 1 - *used;  // for an entry with its end, before the last end
  char* const text = poison_text(r, round) + *used;
  if (room > 1) {
    const size_t bytes = std::min(entry.size(), room - 1);
    std::memcpy(text, entry.data(), bytes);
    text[bytes] = '\0';
    *used += bytes + 1;
  }
  poison_text(r, round)[*used] = '\0';
}

std::string_view SetSegment::PoisonOf(int r, uint64_t round, size_t t) const {
  const std::string prefix = fmt::format("{} ", t);
  std::string_view rest(poison_text(r, round), kPoisonBytes);
  while (!rest.empty() && rest[0] != '\0') {
    std::string_view entry = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(entry.size() + 1, rest.size()));
    if (!entry.starts_with(prefix)) continue;
    entry.remove_prefix(prefix.size());
    return entry;
  }
  return "(too many reasons in this round to tell them all)";
}

ArenaSet::ArenaSet(const SetSpec& spec, BucketPlan plan, Memory memory,
                   const BackendContext& context, bool overlap, WorkPool* pool)
    : spec_(spec),
      plan_(std::move(plan)),
      memory_(std::move(memory)),
      context_(context),
      overlap_(overlap),
      pool_(pool),
      segment_(memory_.segment, context.board.num_ranks(), plan_.buckets.size(),
               plan_.placements.size()),
      marked_(plan_.placements.size()),
      published_(plan_.buckets.size()),
      states_(plan_.buckets.size(), BucketState::kWaiting),
      finished_(plan_.buckets.size()),
      contributors_(plan_.placements.size(), context.board.num_ranks()),
      poisoned_(plan_.placements.size()) {
  for (const Bucket& bucket : plan_.buckets)
    remaining_.push_back(static_cast<int>(bucket.tensors.size()));
}

Status ArenaSet::Open(Backend* backend) {
  for (const Bucket& bucket : plan_.buckets) {
    SlotBucket slots;
    for (const auto& arena : memory_.arenas)
      slots.slots.push_back(arena->data() + bucket.offset_bytes);
    slots.count = bucket.count;
    slots.dtype = bucket.dtype;
    slots.op = spec_.op;
    slots.prescale = spec_.prescale;
    slots.postscale = spec_.postscale;
    Result<std::unique_ptr<BackendBucket>> opened = backend->OpenBucket(context_, std::move(slots));
    if (!opened.ok()) return opened.status();
    backend_buckets_.push_back(std::move(*opened));
  }
  return Status::Ok();
}

const std::shared_ptr<Mapping>& ArenaSet::own_arena() const {
  return memory_.arenas[static_cast<size_t>(context_.rank)];
}

TensorView ArenaSet::slot(size_t t) const {
  const SetTensor& tensor = spec_.tensors[t];
  return {own_arena()->data() + plan_.placements[t].offset_bytes,
          tensor.shape.count(),
          tensor.dtype,
          {}};
}

Status ArenaSet::Enter(size_t t) {
  if (t >= marked_.size()) {
    return Status::InvalidArgument(fmt::format(
        "set '{}': tensor {} does not exist; must be 0 to {}", spec_.name, t, marked_.size() - 1));
  }
  if (pending() != nullptr) {
    return Status::InvalidArgument(fmt::format(
        "set '{}': tensor '{}' is marked while round {} is being reduced; wait for it first",
        spec_.name, spec_.tensors[t].name, round_));
  }
  if (marked_[t] != 0) {
    return Status::InvalidArgument(
        fmt::format("set '{}': tensor '{}' is marked twice in round {}; close the round in between",
                    spec_.name, spec_.tensors[t].name, round_ + 1));
  }
  return Status::Ok();
}

void ArenaSet::Leave(size_t t, SetSegment::Presence presence) {
  marked_[t] = 1;
  segment_.presence(context_.rank, next_round())[t] = presence;
  open_.store(true, std::memory_order_release);
  const auto bucket = static_cast<size_t>(plan_.placements[t].bucket);
  if (--remaining_[bucket] == 0) Publish(bucket);
}

Status ArenaSet::Mark(size_t t) {
  RONDE_RETURN_IF_ERROR(Enter(t));
  Leave(t, SetSegment::kPresent);
  return Status::Ok();
}

Status ArenaSet::Poison(size_t t, const std::string& why) {
  RONDE_RETURN_IF_ERROR(Enter(t));
  segment_.AddPoison(context_.rank, next_round(), t, why, &poison_bytes_);
  const TensorView view = slot(t);
  kernels::FillIdentity(view.dtype, spec_.op, view.data, static_cast<size_t>(view.count));
  Leave(t, SetSegment::kPoisoned);
  return Status::Ok();
}

void ArenaSet::Publish(size_t bucket) {
  const uint64_t round = next_round();
  const uint8_t* presence = segment_.presence(context_.rank, round);
  const std::vector<int>& tensors = plan_.buckets[bucket].tensors;
  segment_.all_present(context_.rank, bucket, round) =
      std::all_of(tensors.begin(), tensors.end(),
                  [&](int t) { return presence[static_cast<size_t>(t)] == SetSegment::kPresent; });
  published_[bucket].store(round, std::memory_order_release);
  segment_.arrive(context_.rank, bucket).store(round, std::memory_order_seq_cst);
  context_.recorder->Record(Hop::kBucketArrive, static_cast<uint32_t>(bucket), round);
  // The last one to arrive wakes those that can go on; without overlap only those that have nothing
  // else to do.
  if (AllReached(bucket, false, round)) {
    context_.doorbell->RingOthers(!overlap_);
    context_.doorbell->Ring(context_.rank, !overlap_);
  }
}

Result<Work> ArenaSet::Close() {
  if (pending() != nullptr) {
    return Status::InvalidArgument(
        fmt::format("set '{}': round {} is closed and not waited for", spec_.name, round_));
  }
  WorkState* work = pool_->Take();
  work->name = fmt::format("round {} of set '{}'", round_ + 1, spec_.name);
  work->kind = OpKind::kAllreduce;
  work->submitted_ns = NowNs();
  Work handle(work);
  // From here on the engine may complete the round; work_ is published before the last bucket is.
  work_.store(work, std::memory_order_release);
  for (size_t t = 0; t < marked_.size(); ++t) {
    if (marked_[t] != 0) continue;
    const TensorView view = slot(t);
    kernels::FillIdentity(view.dtype, spec_.op, view.data, static_cast<size_t>(view.count));
    Leave(t, SetSegment::kAbsent);
  }
  for (size_t b = 0; b < remaining_.size(); ++b) {
    remaining_[b] = static_cast<int>(plan_.buckets[b].tensors.size());
  }
  std::fill(marked_.begin(), marked_.end(), 0);
  poison_bytes_ = 0;
  ++round_;
  open_.store(false, std::memory_order_release);
  return handle;
}

bool ArenaSet::AllReached(size_t bucket, bool done, uint64_t round) const {
  for (int r = 0; r < context_.board.num_ranks(); ++r) {
    const std::atomic<uint64_t>& word =
        done ? segment_.done(r, bucket) : segment_.arrive(r, bucket);
    if (word.load(std::memory_order_seq_cst) < round) return false;
  }
  return true;
}

bool ArenaSet::StepBucket(size_t bucket) {
  const uint64_t round = rounds_done_ + 1;
  switch (states_[bucket]) {
    case BucketState::kWaiting:
      if (published_[bucket].load(std::memory_order_acquire) < round ||
          !AllReached(bucket, false, round)) {
        return false;
      }
      backend_buckets_[bucket]->Start();
      states_[bucket] = BucketState::kReducing;
      return true;
    case BucketState::kReducing:
      if (backend_buckets_[bucket]->Poll() != Progress::kDone) return true;
      segment_.done(context_.rank, bucket).store(round, std::memory_order_seq_cst);
      context_.recorder->Record(Hop::kBucketReduced, static_cast<uint32_t>(bucket), round);
      states_[bucket] = BucketState::kReduced;
      if (AllReached(bucket, true, round)) context_.doorbell->RingOthers(!overlap_);
      return true;
    case BucketState::kReduced:
      if (!AllReached(bucket, true, round)) return false;
      context_.recorder->Record(Hop::kBucketDone, static_cast<uint32_t>(bucket), round);
      states_[bucket] = BucketState::kDone;
      ++num_finished_;
      return true;
    case BucketState::kDone:
      return false;
  }
  return false;
}

bool ArenaSet::Step(const CompleteFn& complete) {
  if (!failed_.ok()) {
    Fail(failed_, complete);
    return false;
  }
  bool running = false;
  bool progress = false;
  // One chunk per step: the first bucket that can move is moved.
  for (size_t b = 0; b < states_.size() && !progress; ++b) {
    if (states_[b] == BucketState::kDone) continue;
    progress = StepBucket(b);
    running |= states_[b] == BucketState::kReducing || states_[b] == BucketState::kReduced;
  }
  running_.store(running, std::memory_order_relaxed);
  WorkState* work = work_.load(std::memory_order_acquire);
  if (work == nullptr || num_finished_ < states_.size()) return progress;
  NoteContributors();
  std::fill(states_.begin(), states_.end(), BucketState::kWaiting);
  num_finished_ = 0;
  ++rounds_done_;
  work_.store(nullptr, std::memory_order_release);
  complete(work, Status::Ok());
  return true;
}

void ArenaSet::NoteContributors() {
  const int n = context_.board.num_ranks();
  const uint64_t round = rounds_done_ + 1;
  for (size_t b = 0; b < plan_.buckets.size(); ++b) {
    bool everybody = true;
    for (int r = 0; r < n; ++r) everybody &= segment_.all_present(r, b, round);
    for (const int tensor : plan_.buckets[b].tensors) {
      const auto t = static_cast<size_t>(tensor);
      contributors_[t] = everybody ? n : 0;
      poisoned_[t] = Status();
      if (everybody) continue;
      for (int r = 0; r < n; ++r) {
        const uint8_t presence = segment_.presence(r, round)[t];
        if (presence == SetSegment::kPresent) ++contributors_[t];
        if (presence != SetSegment::kPoisoned || !poisoned_[t].ok()) continue;
        poisoned_[t] =
            Status::Mismatch(fmt::format("set '{}', tensor '{}': rank {}: {}", spec_.name,
                                         spec_.tensors[t].name, r, segment_.PoisonOf(r, round, t)));
      }
    }
  }
}

Status ArenaSet::tensor_status(size_t t) const {
  return poisoned_[t];
}

int64_t ArenaSet::pending_since_ns() const {
  const WorkState* work = pending();
  return work == nullptr ? 0 : work->submitted_ns;
}

std::vector<int> ArenaSet::Missing() const {
  std::vector<int> missing;
  const uint64_t round = rounds_done_ + 1;
  for (int r = 0; r < context_.board.num_ranks(); ++r) {
    for (size_t b = 0; b < plan_.buckets.size(); ++b) {
      if (segment_.arrive(r, b).load(std::memory_order_seq_cst) >= round &&
          (states_[b] != BucketState::kReduced ||
           segment_.done(r, b).load(std::memory_order_seq_cst) >= round)) {
        continue;
      }
      missing.push_back(r);
      break;
    }
  }
  return missing;
}

void ArenaSet::Fail(const Status& error, const CompleteFn& complete) {
  failed_ = error;
  running_.store(false, std::memory_order_relaxed);
  WorkState* work = work_.exchange(nullptr, std::memory_order_acq_rel);
  if (work != nullptr) complete(work, error);
}

}  // namespace ronde
