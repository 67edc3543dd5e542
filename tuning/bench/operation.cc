#include "tuning/bench/operation.h"

#include <cstring>

#include <fmt/format.h>

namespace ronde::bench {
namespace {

int64_t InputBytes(const OperationSpec& spec) {
  return spec.sizing.input_count * static_cast<int64_t>(DTypeSize(spec.dtype));
}

int64_t OutputBytes(const OperationSpec& spec) {
  return spec.sizing.output_count * static_cast<int64_t>(DTypeSize(spec.dtype));
}

}  // namespace

PrivateOperation::PrivateOperation(Runtime* runtime, const OperationSpec& spec, BufferPair* memory)
    : runtime_(runtime), spec_(spec), inputs_(memory->inputs), outputs_(memory->outputs) {
  inputs_.Resize(InputBytes(spec));
  outputs_.Resize(OutputBytes(spec));
  const int64_t dims[] = {spec.sizing.input_count};
  input_.shape = Shape::Of(dims);
  input_.view.count = spec.sizing.input_count;
  input_.view.dtype = spec.dtype;
  output_.count = spec.sizing.output_count;
  output_.dtype = spec.dtype;
  request_.kind = spec.kind;
  request_.op = spec.op;
  if (spec.kind == OpKind::kBarrier) return;
  request_.inputs = {&input_, 1};
  request_.outputs = {&output_, 1};
}

Status PrivateOperation::Run(int64_t i) {
  input_.view.data = inputs_.at(i);
  output_.data = outputs_.at(i);
  return runtime_->Run(request_, wait_);
}

Result<int64_t> PrivateOperation::Check(const PredictableData& data) {
  data.FillInput(runtime_->rank(), inputs_.at(0), spec_.sizing.input_count);
  std::memset(outputs_.at(0), 0xff, static_cast<size_t>(OutputBytes(spec_)));
  RONDE_RETURN_IF_ERROR(Run(0));
  const int64_t wrong = data.CountWrong(runtime_->rank(), outputs_.at(0), spec_.sizing.output_count,
                                        spec_.sizing.input_count);
  std::memset(inputs_.at(0), 0, static_cast<size_t>(InputBytes(spec_)));
  return wrong;
}

Result<std::unique_ptr<ArenaOperation>> ArenaOperation::Create(Runtime* runtime,
                                                               const OperationSpec& spec) {
  std::unique_ptr<ArenaOperation> operation(new ArenaOperation(runtime, spec));
  const int64_t copies = RotationCopies(InputBytes(spec), kMaxArenaCopies);
  for (int64_t copy = 0; copy < copies; ++copy) {
    SetSpec set;
    set.name = fmt::format("bench.{}", copy);
    const int64_t dims[] = {spec.sizing.input_count};
    set.tensors = {{"tensor", Shape::Of(dims), spec.dtype}};
    set.op = spec.op;
    Result<std::unique_ptr<Set>> declared = runtime->DeclareSet(set);
    if (!declared.ok()) return declared.status();
    std::memset((*declared)->slot(0).data, 0, static_cast<size_t>(InputBytes(spec)));
    operation->sets_.push_back(std::move(declared).value());
  }
  return operation;
}

Status ArenaOperation::Run(int64_t i) {
  Set& set = *sets_[static_cast<size_t>(i) % sets_.size()];
  RONDE_RETURN_IF_ERROR(set.Mark(0));
  RONDE_RETURN_IF_ERROR(set.Close());
  return set.Wait(wait_);
}

Result<int64_t> ArenaOperation::Check(const PredictableData& data) {
  void* slot = sets_[0]->slot(0).data;
  data.FillInput(runtime_->rank(), slot, spec_.sizing.input_count);
  RONDE_RETURN_IF_ERROR(Run(0));
  const int64_t wrong =
      data.CountWrong(runtime_->rank(), slot, spec_.sizing.output_count, spec_.sizing.input_count);
  // In place, the timed rounds add up what is there: zeros stay ordinary numbers.
  std::memset(slot, 0, static_cast<size_t>(InputBytes(spec_)));
  return wrong;
}

LimitOperation::LimitOperation(Buffers buffers, const OperationSpec& spec, BufferPair* memory,
                               const SharedMemory& shared, int rank, int ranks)
    : barrier_(shared, ranks),
      kernel_(buffers, spec.kind, spec.sizing.bytes, memory, shared, rank, ranks) {}

Status LimitOperation::Run(int64_t i) {
  kernel_.Run(i);
  return Status::Ok();
}

Status LimitOperation::BeginSample() {
  return barrier_.Wait() ? Status::Ok() : Status::Timeout("limit: another rank has not come");
}

}  // namespace ronde::bench
