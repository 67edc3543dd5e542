// Operation: one candidate of a row: a collective on one kind of memory, or its limit.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ronde/runtime.h"
#include "tuning/bench/buffers.h"
#include "tuning/bench/formulas.h"
#include "tuning/bench/limit.h"
#include "tuning/bench/predictable.h"

namespace ronde::bench {

// What a row measures.
struct OperationSpec {
  OpKind kind = OpKind::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Sizing sizing;
};

// One rank's part. Every call is collective. Used by one thread; ends before its Runtime.
class Operation {
 public:
  virtual ~Operation() = default;
  // The i-th call: blocks until this rank's result is there. Buffers rotate with i.
  virtual Status Run(int64_t i) = 0;
  // Called before each sample, within its time.
  virtual Status BeginSample() { return Status::Ok(); }
};

// An operation whose result can be compared with what it must be.
class CheckedOperation : public Operation {
 public:
  // Runs once on `data`; how many elements of this rank's result are wrong.
  virtual Result<int64_t> Check(const PredictableData& data) = 0;
};

// On private buffers, out of place, by Runtime::Run.
class PrivateOperation : public CheckedOperation {
 public:
  // `memory` must outlive it.
  PrivateOperation(Runtime* runtime, const OperationSpec& spec, BufferPair* memory);

  Status Run(int64_t i) override;
  Result<int64_t> Check(const PredictableData& data) override;

 private:
  Runtime* const runtime_;
  const OperationSpec spec_;
  RotatingBuffers& inputs_;
  RotatingBuffers& outputs_;
  const WaitOptions wait_;
  Request request_;  // its spans point to the two below
  Tensor input_;
  TensorView output_;
};

// Allreduce in place in the arena of a declared set with one tensor. Rotates through a few sets.
class ArenaOperation : public CheckedOperation {
 public:
  // Collective: declares the sets.
  static Result<std::unique_ptr<ArenaOperation>> Create(Runtime* runtime,
                                                        const OperationSpec& spec);

  Status Run(int64_t i) override;
  Result<int64_t> Check(const PredictableData& data) override;

 private:
  ArenaOperation(Runtime* runtime, const OperationSpec& spec) : runtime_(runtime), spec_(spec) {}

  Runtime* const runtime_;
  const OperationSpec spec_;
  const WaitOptions wait_;
  std::vector<std::unique_ptr<Set>> sets_;
};

// The limit of either kind.
class LimitOperation : public Operation {
 public:
  // As for LimitKernel.
  LimitOperation(Buffers buffers, const OperationSpec& spec, BufferPair* memory,
                 const SharedMemory& shared, int rank, int ranks);

  Status Run(int64_t i) override;
  Status BeginSample() override;

 private:
  SpinBarrier barrier_;
  LimitKernel kernel_;
};

}  // namespace ronde::bench
