// docs/numeric.md once more, in scalar code that shares nothing with core/kernels: what a reduction
// must give, element by element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "core/kernels/reduce.h"

namespace ronde::kernels::reference {

struct Factors {
  double prescale = 1.0;
  double postscale = 1.0;
  int divisor = 1;
};

using Bytes = std::vector<char>;

// The instruction sets that this machine can run.
std::vector<Isa> SupportedIsas();

// The exact result of `count` elements; REQUIRES: not the average of bool.
Bytes Reduce(DType dtype, ReduceOp op, const std::vector<Bytes>& srcs, size_t count,
             const Factors& factors);

// Random elements: all magnitudes, and now and then NaN, infinities, zeros of both signs,
// denormals, and the integers' extremes.
Bytes RandomElements(DType dtype, size_t count, std::mt19937_64& random);

// Index of the first element that differs, or `count`. Any NaN equals any NaN.
size_t FirstDifference(DType dtype, const char* got, const char* expected, size_t count);

bool IsNan(DType dtype, const char* element);

// The number nearest to x (ties to even) with `mantissa_bits` explicit bits and exponents from
// `min_exponent`, encoded in 16 bits with sign first.
uint16_t Encode16(float x, int mantissa_bits, int min_exponent);
float Decode16(uint16_t bits, int mantissa_bits, int min_exponent);

}  // namespace ronde::kernels::reference
