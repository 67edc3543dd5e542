// Reduction kernels: n sources, m destinations, one pass.
//
// Chosen once per process for its processor; every variant gives the same bits (docs/design.md,
// "numeric contract"). Pure functions: any thread, no state, never block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ronde/dtype.h"
#include "ronde/status.h"

namespace ronde::kernels {

// How results are stored. kStreaming bypasses the caches (non-temporal stores, ended by a store
// fence before the function returns): right when the reader is another core and far, or the data
// exceeds the caches.
enum class Store : uint8_t { kCached, kStreaming };

// out = post(tree over k of pre(srcs[k])), the tree being the canonical one over source index:
// T[a,b) = T[a,m) + T[m,b), m = a + the largest power of two below b - a.
struct ReduceArgs {
  const void* const* srcs;  // num_srcs arrays of `count` elements, any alignment
  int num_srcs;             // >= 1
  void* const* dsts;        // num_dsts arrays; each may equal a source, or overlap none
  int num_dsts;             // >= 1
  size_t count;             // elements
  double prescale = 1.0;    // each input is multiplied by it first, in the accumulation type
  double postscale = 1.0;   // the result is multiplied by it, before it is rounded to the dtype
  int divisor = 1;          // kAverage divides the sum by it; ignored by the other operators
  Store store = Store::kCached;
};

using ReduceFn = void (*)(const ReduceArgs& args);

// Instruction sets, weakest first. kBaseline is what every x86-64 (or any other) processor has.
enum class Isa : uint8_t { kBaseline, kAvx2, kAvx512 };

std::string_view IsaName(Isa isa);
// The best one that this processor (and its operating system) supports.
Isa DetectIsa();
// "auto", "baseline", "avx2", "avx512"; InvalidArgument when unknown or not supported here.
Result<Isa> ParseIsa(std::string_view name);

// The kernel for a type and operator; null where the numeric contract has none (average of bool).
ReduceFn FindReduce(Isa isa, DType dtype, ReduceOp op);

// out[i] = factor * in[i] rounded once to dtype (floating types in their accumulation type,
// integers by way of double, truncated). in == out allowed. Scale of bool: identity when factor !=
// 0.
void Scale(DType dtype, const void* in, void* out, size_t count, double factor);

// Fills `count` elements with the operator's identity (0 for sum and average, 1 for product, the
// largest or +inf for min, the smallest or -inf for max; bool: false, false, true, false, true).
void FillIdentity(DType dtype, ReduceOp op, void* out, size_t count);

}  // namespace ronde::kernels
