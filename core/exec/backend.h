// Backend: how collectives are carried out on one technology. State machines: nothing here ever
// blocks.
//
// The engine agrees with the other ranks on what runs (order, shapes, schedule) before a backend
// sees it, so a backend never negotiates. All calls come from the holder of the engine's token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/recorder.h"
#include "core/control/board.h"
#include "core/control/doorbell.h"
#include "core/kernels/reduce.h"
#include "core/plan/rules.h"
#include "ronde/request.h"
#include "ronde/status.h"
#include "ronde/tensor.h"

namespace ronde {

enum class Progress : uint8_t {
  kIdle,  // waits for other ranks
  kBusy,  // did something, has more to do
  kDone,
};

// One agreed operation, ready to run on this rank. Everything it points to lives until it is done.
struct Collective {
  OpKind kind = OpKind::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  int root = 0;
  Schedule schedule = Schedule::kStaged;
  int64_t chunk_bytes = 0;  // 0: the backend's own
  int64_t bytes = 0;        // of the largest input; the same on all ranks
  uint64_t seq = 0;   // of the cells that agreed on it; they hold everybody's input when kOneShot
  uint64_t hint = 0;  // rank 0's BackendLane::Hint
  // Several tensors are treated as one, concatenated (a group, or a fused batch).
  std::span<const TensorView> inputs;
  std::span<const TensorView> outputs;
  // kAllgather: elements of each rank's input. kReducescatter: of each rank's output. kAlltoall:
  // [from * n + to].
  std::span<const int64_t> counts;
};

// A lane's share of a backend: runs one collective at a time, in the order in which every rank
// starts them.
class BackendLane {
 public:
  virtual ~BackendLane() = default;
  virtual void Start(const Collective& collective) = 0;
  // At most one chunk of work.
  virtual Progress Poll() = 0;
  // Forgets the running collective. The group is dead: no other rank will be waited for again.
  virtual void Cancel() = 0;
  // What this rank would like to tell all ranks with its next cell; rank 0's reaches everybody's
  // Start.
  virtual uint64_t Hint() { return 0; }
  // Ranks that the running collective waits for.
  virtual std::vector<int> Missing() const = 0;
  // Chunks published so far.
  virtual int64_t messages() const = 0;
};

// One bucket of a declared set: the same bytes of every local rank's arena.
struct SlotBucket {
  std::vector<std::byte*> slots;  // by rank
  int64_t count = 0;              // elements
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
};

// Reduces this rank's slice of a bucket into every slot, once all ranks' contributions are in
// place.
class BackendBucket {
 public:
  virtual ~BackendBucket() = default;
  virtual void Start() = 0;
  // At most one chunk of work; kDone when this rank's slice is in every slot.
  virtual Progress Poll() = 0;
};

struct BackendContext {
  Board board;
  int rank = 0;
  const Doorbell* doorbell = nullptr;
  kernels::Isa isa = kernels::Isa::kBaseline;
  Recorder* recorder = nullptr;  // never null in a Runtime
  int usable_cores = 1;          // by all ranks of the host together, the same on every rank
  bool oversubscribed = false;   // more ranks than usable cores
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  // For people: what it can do.
  virtual std::string Describe() const = 0;
  virtual Result<std::unique_ptr<BackendLane>> OpenLane(const BackendContext& context,
                                                        int lane) = 0;
  virtual Result<std::unique_ptr<BackendBucket>> OpenBucket(const BackendContext& context,
                                                            SlotBucket bucket) = 0;
};

// The backends that a composition root has linked in or loaded. Filled once, then constant; shared
// by Runtimes.
class BackendRegistry {
 public:
  void Add(std::unique_ptr<Backend> backend) { backends_.push_back(std::move(backend)); }
  // Null when there is none of that name.
  Backend* Find(std::string_view name) const {
    for (const auto& backend : backends_) {
      if (backend->name() == name) return backend.get();
    }
    return nullptr;
  }
  std::span<const std::unique_ptr<Backend>> backends() const { return backends_; }

 private:
  std::vector<std::unique_ptr<Backend>> backends_;
};

}  // namespace ronde
