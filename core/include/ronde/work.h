// Work: the promise for one submitted request.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "ronde/request.h"
#include "ronde/status.h"
#include "ronde/tensor.h"

namespace ronde {
class WorkState;  // the core's; not exported
}

#pragma GCC visibility push(default)
namespace ronde {

// Handle to a work; copies share it. Owned by whoever holds it; may outlive the Runtime (then it is
// done). Any thread may call any method. To wait, see Runtime::Wait.
class Work {
 public:
  Work() = default;
  explicit Work(WorkState* state);  // takes one reference
  Work(const Work& other);
  Work(Work&& other) noexcept : state_(other.state_) { other.state_ = nullptr; }
  Work& operator=(Work other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~Work();

  bool valid() const { return state_ != nullptr; }
  // True once the operation has completed, well or badly. Never blocks, moves nothing forward
  // (Runtime::Poll does).
  bool done() const;

  // REQUIRES for all below: done().
  Status status() const;
  // The result of input `i`: the caller's output, or memory that output_memory(i) keeps alive.
  TensorView output(int i = 0) const;
  Shape output_shape(int i = 0) const;
  // Owner of a result that the core allocated (64-byte aligned); null when the caller supplied the
  // output.
  std::shared_ptr<void> output_memory(int i = 0) const;
  // kAlltoall: rows received from each rank.
  std::span<const int64_t> received_splits() const;

  WorkState* state() const { return state_; }

 private:
  WorkState* state_ = nullptr;
};

// How long to wait, and how to be interrupted.
struct WaitOptions {
  // Milliseconds; negative: only the Runtime's own deadline (RONDE_TIMEOUT_S) applies. When it
  // passes, Wait returns kTimeout and the work stays in flight.
  int64_t timeout_ms = -1;
  // Called on the waiting thread at least every 100 ms; returning false ends the wait with kAborted
  // (the work stays in flight). Bindings run their signal handlers here.
  std::function<bool()> keep_waiting;
};

}  // namespace ronde
#pragma GCC visibility pop
