#include "ronde/request.h"

namespace ronde {

std::string_view OpKindName(OpKind kind) {
  switch (kind) {
    case OpKind::kAllreduce:
      return "allreduce";
    case OpKind::kAllgather:
      return "allgather";
    case OpKind::kBroadcast:
      return "broadcast";
    case OpKind::kReducescatter:
      return "reducescatter";
    case OpKind::kAlltoall:
      return "alltoall";
    case OpKind::kBarrier:
      return "barrier";
  }
  return "?";
}

Shape Shape::Of(std::span<const int64_t> dims) {
  Shape shape;
  for (const int64_t dim : dims) {
    if (shape.ndim < kMaxDims) {
      shape.dims[static_cast<size_t>(shape.ndim++)] = dim;
    } else {
      shape.dims[kMaxDims - 1] *= dim;
    }
  }
  return shape;
}

int64_t Shape::count() const {
  int64_t count = 1;
  for (const int64_t dim : span()) count *= dim;
  return count;
}

int64_t Shape::row_count() const {
  int64_t count = 1;
  for (int i = 1; i < ndim; ++i) count *= dims[static_cast<size_t>(i)];
  return count;
}

}  // namespace ronde
