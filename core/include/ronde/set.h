// Set: tensors declared together once (the gradients of one optimizer), then reduced every round
// without any negotiation, in memory that the ranks of a host share.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ronde/request.h"
#include "ronde/status.h"
#include "ronde/work.h"

#pragma GCC visibility push(default)
namespace ronde {

struct SetTensor {
  std::string name;
  Shape shape;
  DType dtype = DType::kFloat32;
};

struct SetSpec {
  std::string name;  // unique among the sets of the group; the same on all ranks
  // In the order of use: the last layer first makes the first buckets complete early.
  std::vector<SetTensor> tensors;
  ReduceOp op = ReduceOp::kAverage;
  double prescale = 1.0;
  double postscale = 1.0;
  // As Request::invalid: set by a binding that found its arguments wrong, so that the declaration
  // fails with this text on every rank and nobody waits for this one.
  Status invalid = {};
};

// A round is one exchange of the set: every tensor is marked present, absent or poisoned once, then
// Close publishes the rest as absent, then Wait. Made by Runtime::DeclareSet; owned by the caller;
// must be destroyed before its Runtime.
//
// Mark, Poison and Close may be called from any one thread at a time; Wait from any thread.
class Set {
 public:
  virtual ~Set() = default;

  virtual int num_tensors() const = 0;
  // This rank's memory of tensor `t`: count elements, 64-byte aligned, valid as long as the set and
  // at least until all holders of slot_memory() are gone. Between rounds it belongs to the user;
  // from Mark to the end of Wait to Ronde.
  virtual TensorView slot(int t) const = 0;
  // Keeps the mapping behind the slots alive (a tensor that aliases a slot holds it).
  virtual std::shared_ptr<void> slot_memory() const = 0;

  // Tensor `t`'s contribution is in its slot. Publishes the bucket when it was the last one.
  // InvalidArgument when `t` was already marked in this round.
  virtual Status Mark(int t) = 0;
  // This rank cannot contribute `t` (wrong dtype or shape): its result is Mismatch, with `why`, on
  // every rank.
  virtual Status Poison(int t, std::string why) = 0;
  // Ends the round on this rank: tensors not marked are absent (they contribute the operator's
  // identity).
  virtual Status Close() = 0;
  // Marked anything since the last Close?
  virtual bool round_open() const = 0;

  // Waits until every bucket of the closed round is reduced. Group errors and timeouts as for
  // Runtime::Wait.
  virtual Status Wait(const WaitOptions& options = {}) = 0;
  // True once the closed round is reduced; moves the engine forward by one bounded step.
  virtual bool Poll() = 0;

  // Of the last completed round: how many ranks contributed to `t` (0: nobody, the slot is
  // meaningless)...
  virtual int contributors(int t) const = 0;
  // ... and Mismatch when a rank poisoned it.
  virtual Status tensor_status(int t) const = 0;
  // Rounds closed so far.
  virtual int64_t round() const = 0;
  // Bucket index of each tensor; the same on all ranks.
  virtual const std::vector<int>& buckets() const = 0;
};

}  // namespace ronde
#pragma GCC visibility pop
