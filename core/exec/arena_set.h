// ArenaSet: the engine's side of a declared set: where its tensors lie, who has published what, and
// the reduction of complete buckets.
//
// Every rank publishes every bucket of a round exactly once, its tensors present, absent or
// poisoned, in any order; nothing published is withdrawn. So nobody negotiates: two counters per
// rank and bucket say everything.
//   arrive[r][k]  rounds of bucket k that rank r has contributed to
//   done[r][k]    rounds of bucket k in which rank r has reduced its slice into every slot
// Publishing arrive for round s+1 also says "I am through with round s", because it comes after the
// end of Wait, which saw all done.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/shared_memory.h"
#include "core/control/doorbell.h"
#include "core/exec/backend.h"
#include "core/exec/lane.h"
#include "core/exec/work_state.h"
#include "core/plan/buckets.h"
#include "ronde/set.h"

namespace ronde {

// Layout of the memory in which the ranks of a set publish; one memfd per set, made by rank 0.
class SetSegment {
 public:
  static size_t Bytes(int num_ranks, size_t num_buckets, size_t num_tensors);
  SetSegment(std::shared_ptr<Mapping> mapping, int num_ranks, size_t num_buckets,
             size_t num_tensors)
      : mapping_(std::move(mapping)),
        num_ranks_(static_cast<size_t>(num_ranks)),
        num_buckets_(num_buckets),
        num_tensors_(num_tensors) {}

  enum Presence : uint8_t { kAbsent = 0, kPresent = 1, kPoisoned = 2 };
  static constexpr size_t kPoisonBytes = 1024;

  std::atomic<uint64_t>& arrive(int r, size_t bucket) const { return Line(r, bucket)->arrive; }
  std::atomic<uint64_t>& done(int r, size_t bucket) const { return Line(r, bucket)->done; }
  // Plain data, published by arrive: are all tensors of the bucket present, and if not, which.
  // Double buffered by the parity of the round: a rank writes round s+2 after it has seen everybody
  // arrive in s+1, which they do after they have read round s.
  bool& all_present(int r, size_t bucket, uint64_t round) const {
    return Line(r, bucket)->all_present[round & 1];
  }
  uint8_t* presence(int r, uint64_t round) const;
  // Why a tensor is poisoned: written once per tensor and round, `used` being 0 at first; read by
  // everybody.
  void AddPoison(int r, uint64_t round, size_t t, std::string_view why, size_t* used) const;
  std::string_view PoisonOf(int r, uint64_t round, size_t t) const;

 private:
  char* poison_text(int r, uint64_t round) const;
  struct BucketLine {
    alignas(kLine) std::atomic<uint64_t> arrive;
    bool all_present[2];
    alignas(kLine) std::atomic<uint64_t> done;
  };
  BucketLine* Line(int r, size_t bucket) const {
    return reinterpret_cast<BucketLine*>(mapping_->data()) + static_cast<size_t>(r) * num_buckets_ +
           bucket;
  }
  std::byte* TextBase() const;

  std::shared_ptr<Mapping> mapping_;
  size_t num_ranks_;
  size_t num_buckets_;
  size_t num_tensors_;
};

// Shared by the user's Set handle and the engine. Mark, Poison and Close run on the user's thread
// without the token; Step with it.
class ArenaSet {
 public:
  struct Memory {
    std::vector<std::shared_ptr<Mapping>> arenas;  // by rank
    std::shared_ptr<Mapping> segment;
  };
  ArenaSet(const SetSpec& spec, BucketPlan plan, Memory memory, const BackendContext& context,
           bool overlap, WorkPool* pool);

  // Opens the backend's side of every bucket.
  Status Open(Backend* backend);

  // User's thread.
  Status Mark(size_t t);
  Status Poison(size_t t, const std::string& why);
  Result<Work> Close();
  bool round_open() const { return open_.load(std::memory_order_acquire); }
  int64_t round() const { return round_; }
  int contributors(size_t t) const { return contributors_[t]; }
  Status tensor_status(size_t t) const;
  TensorView slot(size_t t) const;
  const std::shared_ptr<Mapping>& own_arena() const;
  const SetSpec& spec() const { return spec_; }
  const BucketPlan& plan() const { return plan_; }

  // Token. Reduces what is complete; true when something happened.
  bool Step(const CompleteFn& complete);
  // Is some bucket between all-arrived and all-done, so that every rank's engine is needed?
  bool running() const { return running_; }
  // The closed round's work; null when there is none.
  const WorkState* pending() const { return work_.load(std::memory_order_acquire); }
  int64_t pending_since_ns() const;
  std::vector<int> Missing() const;
  void Fail(const Status& error, const CompleteFn& complete);

 private:
  enum class BucketState : uint8_t { kWaiting, kReducing, kReduced, kDone };

  uint64_t next_round() const { return static_cast<uint64_t>(round_) + 1; }
  Status Enter(size_t t);
  void Leave(size_t t, SetSegment::Presence presence);
  void Publish(size_t bucket);
  bool AllReached(size_t bucket, bool done, uint64_t round) const;
  bool StepBucket(size_t bucket);
  void NoteContributors();

  const SetSpec spec_;
  const BucketPlan plan_;
  const Memory memory_;
  const BackendContext context_;
  const bool overlap_;
  WorkPool* const pool_;
  const SetSegment segment_;
  std::vector<std::unique_ptr<BackendBucket>> backend_buckets_;

  // User's thread.
  std::vector<uint8_t> marked_;
  std::vector<int> remaining_;  // tensors of each bucket not yet marked
  size_t poison_bytes_ = 0;     // of this round's reasons
  std::atomic<bool> open_{false};
  int64_t round_ = 0;

  // Between the two: the closed round's work, and rounds published per bucket (read by Step, hence
  // atomic).
  std::atomic<WorkState*> work_{nullptr};
  std::vector<std::atomic<uint64_t>> published_;

  // Token.
  std::vector<BucketState> states_;
  std::vector<uint64_t> finished_;  // rounds of each bucket that are complete here
  size_t num_finished_ = 0;         // buckets of the current round
  uint64_t rounds_done_ = 0;
  std::atomic<bool> running_{false};
  Status failed_;

  // Written by Step before the round's work completes, read by the user after.
  std::vector<int> contributors_;
  std::vector<Status> poisoned_;
};

}  // namespace ronde
