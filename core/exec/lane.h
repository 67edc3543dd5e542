// Lane: a stream of collectives that every rank runs in the same order.
//
// The head operation goes through three states: posted (this rank's cell says what it means, and
// carries its input when small), matched (all cells are there and their signatures agree; otherwise
// the operation fails on every rank, with everybody's values), running (the backend has it).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/control/board.h"
#include "core/control/description.h"
#include "core/control/doorbell.h"
#include "core/exec/backend.h"
#include "core/exec/work_state.h"
#include "core/plan/rules.h"

namespace ronde {

// Takes a finished work off a lane's hands (with the lane's reference).
using CompleteFn = std::function<void(WorkState*, Status)>;
// Ends the group with an error that this rank alone has met.
using FailGroupFn = std::function<void(const Status&)>;

// Owned by the engine; every method needs the token.
class Lane {
 public:
  Lane(int index, const BackendContext& context, const RuleTable* rules,
       std::unique_ptr<BackendLane> backend, CompleteFn complete, FailGroupFn fail_group);

  // Appends a work, or a batch of works (linked by `batch`) that are fused into one collective.
  // Takes over one reference of each.
  void Enqueue(WorkState* work);

  // An operation that never becomes a work when all goes well: the caller posts it on an empty
  // lane, waits for AllPosted, and finishes it. Otherwise (too long, signatures differ) it hands
  // over a work with the same request, which goes on from there. Until it finishes or calls
  // StopPolling the caller must look at the cells; its cell says so, instead of its doze.
  void PostInline(const OpView& view);
  void StopPolling();
  bool FinishInline(const TensorView& output);
  void Adopt(WorkState* work);
  // Are the cells of the posted operation all there?
  bool AllPosted() const;

  // Moves the head forward by one bounded step; true when something happened.
  bool Step();

  bool empty() const { return head_ == nullptr; }
  // Does the backend work on the head right now, so that every rank's engine is needed?
  bool running() const { return state_ == State::kRunning; }
  const WorkState* head() const { return head_; }
  // Ranks that the head waits for.
  std::vector<int> Missing() const;
  // Completes everything with `error`.
  void Fail(const Status& error);

  int64_t messages() const { return posted_ + backend_->messages(); }

 private:
  enum class State : uint8_t { kNew, kInline, kPosted, kRunning };

  void Post();
  bool SignaturesAgree() const;
  void Match();
  void Reject();
  void Unfuse();
  Status Begin();
  Status PrepareGathered();
  int64_t AgreedBytes() const;
  void FinishPart();
  void FinishHead(const Status& status);
  void SetView();
  uint64_t ViewSignature() const;
  void PublishCell(bool polled);
  void PrefetchNextCell() const;
  Collective MakeCollective(int64_t bytes) const;
  bool whole_group() const;  // does one collective carry all tensors of the request?

  const int index_;
  const BackendContext context_;
  const RuleTable* const rules_;
  const std::unique_ptr<BackendLane> backend_;
  const CompleteFn complete_;
  const FailGroupFn fail_group_;

  WorkState* head_ = nullptr;
  WorkState* tail_ = nullptr;
  State state_ = State::kNew;
  uint64_t seq_ = 0;   // cells posted and completed
  size_t part_ = 0;    // tensor of the head that is under way, where tensors go one by one
  Status late_error_;  // found too late to tell the other ranks; this rank's work ends with it
  int64_t posted_ = 0;

  // Of the head's current part, since it was posted.
  OpView view_{};                      // what the ranks agree on
  std::span<const Tensor> carried_;    // the tensors of it that this collective carries
  std::vector<int64_t> equal_splits_;  // of an alltoall without splits

  // The current collective's arguments; kept for their capacity.
  std::vector<Tensor> tensors_;
  std::vector<TensorView> inputs_;
  std::vector<TensorView> outputs_;
  std::vector<int64_t> counts_;
};

}  // namespace ronde
