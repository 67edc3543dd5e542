// Sizes and bandwidths of each collective, as nccl-tests defines them. Pure functions.
#pragma once

#include <cstdint>

#include "ronde/request.h"

namespace ronde::bench {

// What one rank sends and receives for a row of about `bytes`.
struct Sizing {
  int64_t bytes = 0;         // the row's size: the larger one of the two sides below, exact
  int64_t input_count = 0;   // elements of this operation's input on one rank
  int64_t output_count = 0;  // and of its output
};

// `bytes` asked for: of the tensor for allreduce and broadcast, of all ranks' parts together for
// allgather, reducescatter and alltoall (then rounded down so that each rank has the same count, of
// whole 16-byte units as far as that leaves any). At least one element.
Sizing SizeOperation(OpKind kind, int64_t bytes, int64_t element_bytes, int ranks);

// algbw in GB/s (1e9): size / time. 0 for no time.
double AlgBandwidth(int64_t bytes, double time_us);

// busbw = algbw * this: what the busiest link carries, comparable between numbers of ranks.
double BusFactor(OpKind kind, int ranks);

}  // namespace ronde::bench
