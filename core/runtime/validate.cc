#include "core/runtime/validate.h"

#include <cmath>
#include <limits>
#include <string>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ronde {
namespace {

bool IsReduction(OpKind kind) {
  return kind == OpKind::kAllreduce || kind == OpKind::kReducescatter;
}

// These deal with rows, so a scalar has nothing to divide or to join.
bool NeedsRows(OpKind kind) {
  return kind == OpKind::kAllgather || kind == OpKind::kReducescatter || kind == OpKind::kAlltoall;
}

std::string ShapeText(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.span(), ","));
}

// "allreduce 'fc.weight'", which opens every text of this file.
std::string Describe(const Request& request) {
  if (request.name.empty()) return fmt::format("{} (unnamed)", OpKindName(request.kind));
  return fmt::format("{} '{}'", OpKindName(request.kind), request.name);
}

template <typename... Args>
Status Invalid(const Request& request, fmt::format_string<Args...> text, Args&&... args) {
  return Status::InvalidArgument(
      fmt::format("{}: {}", Describe(request), fmt::format(text, std::forward<Args>(args)...)));
}

// The product of the dimensions, or -1 when one is negative or it exceeds 63 bits.
int64_t CheckedCount(const Shape& shape) {
  int64_t count = 1;
  bool overflow = false;
  for (const int64_t dim : shape.span()) {
    if (dim < 0) return -1;
    if (dim == 0) return 0;
    overflow |= __builtin_mul_overflow(count, dim, &count);
  }
  return overflow ? -1 : count;
}

bool FitsInMemory(int64_t count, DType dtype) {
  return count <= std::numeric_limits<int64_t>::max() / static_cast<int64_t>(DTypeSize(dtype));
}

bool IsDType(DType dtype) {
  return static_cast<int>(dtype) < kNumDTypes;
}
bool IsReduceOp(ReduceOp op) {
  return static_cast<int>(op) < kNumReduceOps;
}

Status ValidateInput(const Request& request, size_t i) {
  const auto& [view, shape] = request.inputs[i];
  if (!IsDType(view.dtype)) {
    return Invalid(request, "input {} has dtype number {}; must be 0 to {}", i,
                   static_cast<int>(view.dtype), kNumDTypes - 1);
  }
  const int64_t count = CheckedCount(shape);
  if (count < 0 || !FitsInMemory(count, view.dtype)) {
    return Invalid(request, "input {} has shape {}; dimensions must be >= 0 and fit in memory", i,
                   ShapeText(shape));
  }
  if (view.count != count) {
    return Invalid(request, "input {} has {} elements, but shape {} needs {}", i, view.count,
                   ShapeText(shape), count);
  }
  if (view.data == nullptr && count > 0) {
    return Invalid(request, "input {} is a null pointer with {} elements", i, count);
  }
  if (NeedsRows(request.kind) && shape.ndim == 0) {
    return Invalid(request, "input {} is a scalar; it needs at least one dimension", i);
  }
  if (view.device.type != DeviceType::kCpu) {
    return Status::Unsupported(fmt::format("{}: input {} is on device cuda:{}; allowed: cpu",
                                           Describe(request), i, view.device.index));
  }
  return Status::Ok();
}

bool HaveCommonMemory(const TensorView& a, const TensorView& b) {
  const auto a_begin = reinterpret_cast<uintptr_t>(a.data);
  const auto b_begin = reinterpret_cast<uintptr_t>(b.data);
  return a.count > 0 && b.count > 0 && a_begin < b_begin + static_cast<uintptr_t>(b.size_bytes()) &&
         b_begin < a_begin + static_cast<uintptr_t>(a.size_bytes());
}

// Elements that output `i` must have, or -1 when that depends on other ranks.
int64_t ExpectedOutputCount(const Request& request, size_t i, int rank, int size) {
  const Shape& shape = request.inputs[i].shape;
  switch (request.kind) {
    case OpKind::kAllreduce:
    case OpKind::kBroadcast:
      return shape.count();
    case OpKind::kReducescatter:
      return ReducescatterRows(shape.dims[0], rank, size) * shape.row_count();
    case OpKind::kAllgather:
    case OpKind::kAlltoall:
      return size == 1 ? shape.count() : -1;
    case OpKind::kBarrier:
      return 0;
  }
  return -1;
}

Status ValidateOutput(const Request& request, size_t i, int rank, int size) {
  const TensorView& input = request.inputs[i].view;
  const TensorView& output = request.outputs[i];
  if (output.dtype != input.dtype) {
    return Invalid(request, "output {} is {}, but input {} is {}", i, DTypeName(output.dtype), i,
                   DTypeName(input.dtype));
  }
  const int64_t expected = ExpectedOutputCount(request, i, rank, size);
  if (output.count < 0 || (expected >= 0 && output.count != expected)) {
    return Invalid(request, "output {} has {} elements; must have {}", i, output.count,
                   expected >= 0 ? fmt::format("{}", expected) : ">= 0");
  }
  if (output.data == nullptr && output.count > 0) {
    return Invalid(request, "output {} is a null pointer with {} elements", i, output.count);
  }
  if (output.device != input.device) return Invalid(request, "output {} is on another device", i);
  // What an operation has not read yet must not be written by it.
  const bool in_place_allowed =
      request.kind == OpKind::kAllreduce || request.kind == OpKind::kBroadcast;
  if (HaveCommonMemory(input, output) && !(in_place_allowed && output.data == input.data)) {
    return Invalid(request, "output {} overlaps input {}; allowed: {}none in common", i, i,
                   in_place_allowed ? "the same memory or " : "");
  }
  return Status::Ok();
}

Status ValidateSplits(const Request& request, int size) {
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const int64_t rows = request.inputs[i].shape.dims[0];
    if (request.splits.empty()) {
      if (rows % size != 0) {
        return Invalid(request,
                       "input {} has {} rows, which {} ranks cannot share equally; give "
                       "splits",
                       i, rows, size);
      }
      continue;
    }
    if (request.splits.size() != static_cast<size_t>(size)) {
      return Invalid(request, "splits has {} values; must have one for each of the {} ranks",
                     request.splits.size(), size);
    }
    int64_t sum = 0;
    for (size_t r = 0; r < request.splits.size(); ++r) {
      if (request.splits[r] < 0 || request.splits[r] > rows) {
        return Invalid(request, "splits[{}] is {}; must be 0 to {}, the rows of input {}", r,
                       request.splits[r], rows, i);
      }
      sum += request.splits[r];
    }
    if (sum != rows) {
      return Invalid(request, "splits [{}] add up to {}; must add up to {}, the rows of input {}",
                     fmt::join(request.splits, ","), sum, rows, i);
    }
  }
  return Status::Ok();
}

Status ValidateScales(const Request& request) {
  for (const auto& [name, factor] :
       {std::pair("prescale", request.prescale), std::pair("postscale", request.postscale)}) {
    if (!std::isfinite(factor)) {
      return Invalid(request, "{} factor is {}; must be finite", name, factor);
    }
    if (factor != 1.0 && !IsReduction(request.kind)) {
      return Invalid(request, "{} factor is {}; must be 1: only allreduce and reducescatter scale",
                     name, factor);
    }
  }
  return Status::Ok();
}

constexpr const char* kNoBoolAverage =
    "the average of bool is not defined; allowed: sum (or), "
    "min (and), max (or), product (and)";

Status ValidateOperator(const Request& request) {
  if (!IsReduction(request.kind) || request.op != ReduceOp::kAverage) return Status::Ok();
  for (const Tensor& input : request.inputs) {
    if (input.view.dtype == DType::kBool) return Invalid(request, "{}", kNoBoolAverage);
  }
  return Status::Ok();
}

}  // namespace

Status ValidateName(std::string_view name) {
  if (name.size() <= kMaxNameBytes) return Status::Ok();
  return Status::InvalidArgument(fmt::format("name '{}...' has {} bytes; at most {} are allowed",
                                             name.substr(0, 40), name.size(), kMaxNameBytes));
}

Status ValidateRequest(const Request& request, int rank, int size) {
  RONDE_RETURN_IF_ERROR(request.invalid);
  if (static_cast<int>(request.kind) >= kNumOpKinds) {
    return Status::InvalidArgument(fmt::format("operation kind {}; must be 0 to {}",
                                               static_cast<int>(request.kind), kNumOpKinds - 1));
  }
  if (!IsReduceOp(request.op)) {
    return Invalid(request, "operator number {}; must be 0 to {}", static_cast<int>(request.op),
                   kNumReduceOps - 1);
  }
  if (request.kind == OpKind::kBarrier) {
    if (request.inputs.empty() && request.outputs.empty()) return Status::Ok();
    return Invalid(request, "{} tensors were given; a barrier takes none", request.inputs.size());
  }
  if (request.inputs.empty()) return Invalid(request, "no tensor was given; at least 1 is needed");
  if (!request.outputs.empty() && request.outputs.size() != request.inputs.size()) {
    return Invalid(request, "{} outputs for {} inputs; allowed: none or one for each",
                   request.outputs.size(), request.inputs.size());
  }
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    RONDE_RETURN_IF_ERROR(ValidateInput(request, i));
    if (!request.outputs.empty()) RONDE_RETURN_IF_ERROR(ValidateOutput(request, i, rank, size));
  }
  RONDE_RETURN_IF_ERROR(ValidateScales(request));
  RONDE_RETURN_IF_ERROR(ValidateOperator(request));
  if (request.kind == OpKind::kBroadcast && (request.root < 0 || request.root >= size)) {
    return Invalid(request, "root is {}; must be 0 to {}", request.root, size - 1);
  }
  if (request.kind == OpKind::kAlltoall) return ValidateSplits(request, size);
  return Status::Ok();
}

Status ValidateSetSpec(const SetSpec& spec) {
  RONDE_RETURN_IF_ERROR(ValidateName(spec.name));
  const auto invalid = [&](const std::string& what) {
    return Status::InvalidArgument(fmt::format("set '{}': {}", spec.name, what));
  };
  RONDE_RETURN_IF_ERROR(spec.invalid);
  if (spec.name.empty()) return invalid("the name is empty; a set needs one");
  if (!IsReduceOp(spec.op)) {
    return invalid(fmt::format("operator number {}; must be 0 to {}", static_cast<int>(spec.op),
                               kNumReduceOps - 1));
  }
  if (!std::isfinite(spec.prescale) || !std::isfinite(spec.postscale)) {
    return invalid(
        fmt::format("scale factors are {} and {}; must be finite", spec.prescale, spec.postscale));
  }
  std::unordered_set<std::string_view> names;
  for (const SetTensor& tensor : spec.tensors) {
    RONDE_RETURN_IF_ERROR(ValidateName(tensor.name));
    if (!names.insert(tensor.name).second) {
      return invalid(fmt::format("tensor name '{}' appears twice; names must differ", tensor.name));
    }
    if (!IsDType(tensor.dtype)) {
      return invalid(fmt::format("tensor '{}' has dtype number {}; must be 0 to {}", tensor.name,
                                 static_cast<int>(tensor.dtype), kNumDTypes - 1));
    }
    const int64_t count = CheckedCount(tensor.shape);
    if (count < 0 || !FitsInMemory(count, tensor.dtype)) {
      return invalid(
          fmt::format("tensor '{}' has shape {}; dimensions must be >= 0 and fit in "
                      "memory",
                      tensor.name, ShapeText(tensor.shape)));
    }
    if (spec.op == ReduceOp::kAverage && tensor.dtype == DType::kBool) {
      return invalid(fmt::format("tensor '{}': {}", tensor.name, kNoBoolAverage));
    }
  }
  return Status::Ok();
}

}  // namespace ronde
