// Data whose result is known exactly: every partial sum and product, in any order, is a number that
// the dtype represents. So a benchmark compares bit by bit and counts wrong elements.
#pragma once

#include <cstdint>

#include "ronde/dtype.h"
#include "ronde/request.h"

namespace ronde::bench {

// The data of one operation over `ranks` ranks; another seed gives other data. Pure values: any
// thread, cheap to copy. Broadcasts are from rank 0, parts of allgather and the like are equal.
class PredictableData {
 public:
  PredictableData(OpKind kind, DType dtype, ReduceOp op, int ranks, uint64_t seed);

  // Writes the `count` elements of rank `rank`'s input to `data`.
  void FillInput(int rank, void* data, int64_t count) const;

  // How many of the `count` elements of rank `rank`'s output in `data` are not what they must be.
  // `input_count` is what each rank put in.
  int64_t CountWrong(int rank, const void* data, int64_t count, int64_t input_count) const;

 private:
  int64_t Input(int rank, int64_t i) const;
  int64_t Reduced(int64_t i) const;
  int64_t Expected(int rank, int64_t i, int64_t input_count) const;

  const OpKind kind_;
  const DType dtype_;
  const ReduceOp op_;
  const int ranks_;
  const uint64_t seed_;
  int64_t bound_;         // inputs of sum and average are 0 to this, of min and max too
  int contributors_ = 0;  // sum and average: ranks from here on contribute zeros
};

// `value` as one element of `dtype`, at `to`. REQUIRES: the dtype represents it.
void StoreInteger(DType dtype, int64_t value, void* to);

}  // namespace ronde::bench
