// Request: one rank's wish for a collective operation.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "ronde/dtype.h"
#include "ronde/status.h"
#include "ronde/tensor.h"

#pragma GCC visibility push(default)
namespace ronde {

enum class OpKind : uint8_t {
  kAllreduce = 0,
  kAllgather = 1,
  kBroadcast = 2,
  kReducescatter = 3,
  kAlltoall = 4,
  kBarrier = 5,
};
inline constexpr int kNumOpKinds = 6;
// "allreduce" and so on.
std::string_view OpKindName(OpKind kind);

inline constexpr size_t kMaxNameBytes = 1023;

// Dimensions of a tensor. At most kMaxDims are kept apart: further inner dimensions are folded into
// the last one, which changes no result, only how a mismatch is printed.
struct Shape {
  static constexpr int kMaxDims = 8;
  int ndim = 0;
  std::array<int64_t, kMaxDims> dims = {};

  static Shape Of(std::span<const int64_t> dims);
  // Product of the dimensions; 1 for a scalar.
  int64_t count() const;
  // Elements of one row, i.e. of everything but the first dimension; 1 for a scalar.
  int64_t row_count() const;
  std::span<const int64_t> span() const { return {dims.data(), static_cast<size_t>(ndim)}; }
  bool operator==(const Shape&) const = default;
};

// A tensor that takes part: view.count == shape.count().
struct Tensor {
  TensorView view;
  Shape shape;
};

// What to do, on what. All spans and views are read by Submit and Run before they return, but the
// memory behind the views must stay valid and untouched until the work is done.
struct Request {
  OpKind kind = OpKind::kAllreduce;

  // Named operations match by name, whatever the order in which ranks submit them; a name may be in
  // flight once. Unnamed ones ("") match by their position among this group's unnamed operations.
  std::string_view name;

  // One tensor; several are a grouped operation, done when all are. kBarrier: none.
  std::span<const Tensor> inputs;

  // One per input, or none: then the core allocates, and Work::output() owns the result. Must not
  // overlap its input, except where it may be the input's memory ("in place").
  //
  // - kAllreduce: the input's count; in place.
  // - kBroadcast: the input's count; in place. Inputs of ranks other than the root are not read.
  // - kAllgather: the sum of all ranks' counts; in rank order along dimension 0.
  // - kReducescatter: this rank's rows: dimension 0 divided by the ranks; earlier ranks take the
  //   remainder.
  // - kAlltoall: the rows received, in rank order.
  std::span<const TensorView> outputs;

  ReduceOp op = ReduceOp::kSum;  // kAllreduce, kReducescatter
  double prescale = 1.0;         // finite; each input is multiplied by it
  double postscale = 1.0;        // finite; the result is multiplied by it
  int root = 0;                  // kBroadcast: 0 <= root < size

  // kAlltoall: rows of dimension 0 that go to each rank, `size` values that add up to it; empty:
  // equal parts. They hold for every input, so all must have the same number of rows.
  std::span<const int64_t> splits;

  // Set by a binding that found the arguments wrong (a tensor on a foreign device, say): the
  // operation takes its place in the order and fails with this text on every rank, so that nobody
  // waits for it.
  Status invalid;
};

}  // namespace ronde
#pragma GCC visibility pop
