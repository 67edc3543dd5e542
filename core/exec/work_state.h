// WorkState: everything about one submitted request, from Submit to the last handle's end.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/control/description.h"
#include "ronde/request.h"
#include "ronde/status.h"
#include "ronde/work.h"

namespace ronde {

class WorkPool;

// Reference counted: one reference per Work handle, one held by the engine while the work is in
// flight. The submitting thread fills it; then the token's holder owns it until Finish; then it is
// constant.
class WorkState {
 public:
  enum : uint32_t { kPending = 0, kDone = 1 };

  void Ref() { references_.fetch_add(1, std::memory_order_relaxed); }
  void Unref();

  // Copies what the request refers to (spans and names, not the tensors' elements).
  void Assign(const Request& request);

  bool done() const { return state_.load(std::memory_order_acquire) == kDone; }
  // Sets the outcome and wakes every thread parked on it. Exactly once.
  void Finish(Status status);
  // Sleeps until done, at most timeout_ns. False: the cap ended it.
  bool Park(int64_t timeout_ns);

  // Allocates output `i` (64-byte aligned) with this shape. OutOfMemory names the bytes.
  Status AllocateOutput(size_t i, const Shape& shape, DType dtype);

  // The request.
  OpKind kind = OpKind::kBarrier;
  std::string name;
  std::vector<Tensor> inputs;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  int root = 0;
  std::vector<int64_t> splits;
  Status invalid;
  std::function<void(const Status&)> callback;
  bool outputs_given = false;

  // The outcome.
  Status status;
  std::vector<TensorView> outputs;
  std::vector<Shape> output_shapes;
  std::vector<std::shared_ptr<void>> output_memory;
  std::vector<int64_t> received_splits;

  // The engine's: when it was submitted, the next in a queue.
  int64_t submitted_ns = 0;
  WorkState* next = nullptr;
  WorkState* batch = nullptr;  // the next work fused with this one
  uint32_t id = 0;             // of its name

  // Are the inputs of one type? Backends treat the tensors of a collective as one.
  bool uniform() const;

  // "allreduce 'fc.weight'" or "allreduce (unnamed)".
  std::string Describe() const;

 private:
  friend class WorkPool;
  void Clear();

  std::atomic<uint32_t> state_{kPending};
  std::atomic<uint32_t> parked_{0};
  std::atomic<int> references_{0};
  std::shared_ptr<WorkPool> pool_;
};

// What the ranks must agree on. Borrows from the work; the reason of an invalid one is given
// without the operation's name, which whoever reports it adds.
OpView ViewOf(const WorkState& work);

// Recycles WorkStates, so that a steady stream of operations allocates nothing. Thread-safe. Held
// by shared pointer, because Work handles may outlive the Runtime.
class WorkPool : public std::enable_shared_from_this<WorkPool> {
 public:
  ~WorkPool();
  // With one reference, held by the caller.
  WorkState* Take();
  // Frees the spare ones and keeps none from now on.
  void Close();

 private:
  friend class WorkState;
  void Give(WorkState* work);

  static constexpr size_t kMaxSpare = 1024;
  std::mutex mutex_;
  std::vector<WorkState*> spare_;
  bool closed_ = false;
};

}  // namespace ronde
