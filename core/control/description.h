// Description: what one rank means by an operation, in a form that others can read, compare and
// print.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ronde/request.h"
#include "ronde/status.h"

namespace ronde {

namespace wire {
class Descriptor;
}

struct TensorDescription {
  std::string name;  // in a set
  DType dtype = DType::kFloat32;
  Shape shape;
};

struct Description {
  OpKind kind = OpKind::kBarrier;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  std::vector<TensorDescription> tensors;  // possibly only some of the group's
  size_t group_size = 0;
  std::vector<int64_t> splits;
  int64_t bucket_bytes = 0;  // of a set
  std::string invalid;       // why this rank cannot take part; empty: it can
};

// The same, as the fast path has it: nothing copied.
struct OpView {
  OpKind kind;
  ReduceOp op;
  int root;
  double prescale;
  double postscale;
  std::span<const Tensor> tensors;
  size_t group_size;  // tensors in the request, of which `tensors` may be a part
  std::span<const int64_t> splits;
  std::string_view invalid;
};

// 64 bits that are equal on two ranks exactly when Compare would find nothing (up to hash
// collisions); never 0 for a valid operation, always 0 for an invalid one. Leaves out what may
// differ between ranks: the first dimension of allgather and alltoall, splits.
uint64_t Signature(const OpView& op);

// Writes a fixed binary form into `out` (kDescriptorBytes of the board, aligned to 8). Tensors
// beyond kMaxDescribedTensors are counted, not written; text is cut.
inline constexpr size_t kMaxDescribedTensors = 64;
void EncodeDescription(const OpView& op, std::byte* out);
// Reads it back. Never reads past kDescriptorBytes, whatever is there.
Description DecodeDescription(const std::byte* in);
// The shape of tensor `i` and split `i` in the binary form, without decoding the rest.
Shape EncodedShape(const std::byte* in, size_t i);
int64_t EncodedSplit(const std::byte* in, size_t i);

void ToWire(const Description& description, wire::Descriptor* out);
Result<Description> FromWire(const wire::Descriptor& in);
Description ToDescription(const OpView& op);

// All ranks' descriptions of one operation, called `what` ("allreduce 'x'"). OK, or Mismatch with
// ranks and values; InvalidArgument when every rank found its own arguments wrong.
Status CompareDescriptions(std::string_view what, std::span<const Description> by_rank);

// "rank 3", "ranks 0-2, 5".
std::string RankList(std::span<const int> ranks);

}  // namespace ronde
