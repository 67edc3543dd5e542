// GradientSet: the gradients of one optimizer, in slots that Ronde reduces; and the hooks that put
// them there.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bindings/python/src/nb.h"
#include "bindings/python/src/session.h"
#include "core/kernels/reduce.h"
#include "ronde/set.h"

namespace ronde::python {

// Owned by Python's ronde.torch.optimizer and by the hooks (shared). Every method needs the GIL,
// which also serialises it; Finish releases it while it waits.
//
// A backward pass is begun by its first hook, which calls `begin` (set by Python); a round is
// contributions, then Finish.
class GradientSet {
 public:
  GradientSet(std::shared_ptr<Session> session, std::unique_ptr<Set> set, bool idempotent);

  // Makes the tensor that .grad becomes for tensor `t`: over its slot, of the parameter's shape and
  // strides (in elements).
  void Bind(int t, std::vector<int64_t> shape, std::vector<int64_t> strides);

  // Called by the first hook of a backward pass; answers whether gradients are only accumulated in
  // this pass, and None when the optimizer is gone.
  void SetBegin(nb::object begin) { begin_ = std::move(begin); }
  void EndBackward() { in_backward_ = false; }

  // A gradient has been accumulated into param.grad during backward.
  void OnGradient(int t, nb::handle param);
  // Makes param.grad this rank's contribution: it is copied into the slot unless it is the slot,
  // and becomes the slot's tensor. Without a gradient the tensor stays absent. One that does not
  // fit fails on every rank.
  void Contribute(int t, nb::handle param);

  // Ends the round and waits until it is reduced; answers the tensors that only other ranks
  // contributed to. Raises group errors and KeyboardInterrupt (then Finish goes on waiting).
  std::vector<int> Finish();
  // Raises Mismatch when the last round's result of a tensor is none.
  void RaiseMismatches() const;

  // What .grad becomes for tensor `t`.
  nb::object GradTensor(int t) const { return entries_.at(static_cast<size_t>(t)).tensor; }
  // Tensors that this rank has not contributed in the open round.
  std::vector<int> Absent() const;
  // Something was contributed since the last round, or its Finish was interrupted.
  bool Unfinished() const { return waiting_ || set_->round_open(); }
  // Forgets that gradients are already reduced: they are about to be cleared or were used.
  void Renew() { reduced_ = false; }

 private:
  // One declared tensor.
  struct Entry {
    void* data = nullptr;  // the slot
    size_t bytes = 0;
    std::vector<int64_t> shape;
    std::vector<int64_t> strides;
    nb::object base;  // over the slot, ours alone; the next four are read from it once
    nb::object dtype;
    nb::object shape_tuple;
    nb::object stride_tuple;
    nb::object copy;    // its method copy_
    nb::object tensor;  // over the slot too: .grad
    bool contributed = false;
  };

  nb::object MakeTensor(int t) const;
  // Copies a gradient that is elsewhere (at `data`; null: sparse, or on another device) into the
  // slot; false, with a reason, when it cannot be.
  bool CopyIn(const Entry& entry, nb::handle grad, const void* data, std::string* why) const;
  void Poison(int t, std::string why);

  const std::shared_ptr<Session> session_;  // before set_: outlives it
  const std::unique_ptr<Set> set_;
  const bool idempotent_;  // reducing a result again gives the same: true for averages
  std::vector<Entry> entries_;
  int64_t total_bytes_ = 0;
  kernels::Store store_ = kernels::Store::kCached;  // of large gradients into their slots
  nb::object begin_;
  bool in_backward_ = false;
  bool accumulating_ = false;
  bool waiting_ = false;  // closed, not yet waited for
  bool reduced_ = false;  // a round ended since Renew
};

// What register_post_accumulate_grad_hook gets: called with the parameter.
class Hook {
 public:
  Hook(std::shared_ptr<GradientSet> set, int t) : set_(std::move(set)), t_(t) {}
  void operator()(nb::handle param) const { set_->OnGradient(t_, param); }

 private:
  const std::shared_ptr<GradientSet> set_;
  const int t_;
};

void RegisterGradients(nb::module_& module);

}  // namespace ronde::python
