// Case: one point of the conformance grid, and the sets of points that are run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ronde/request.h"
#include "tests/conformance/backend_under_test.h"

namespace ronde::conformance {

// Tensor sizes: elements, or about so many bytes.
enum class Size { kNothing, kOne, kOdd, kPrime, kCell, kJustOver, kLarge };
enum class Output { kInPlace, kGiven, kAllocated };
enum class Call { kRun, kSubmit, kNamedRun, kNamedShuffled };
enum class Data { kExact, kRandom };

struct Case {
  OpKind kind = OpKind::kAllreduce;
  int ranks = 1;
  Size size = Size::kOne;
  Output output = Output::kInPlace;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int scale = 0;  // index of a pair (prescale, postscale)
  int tensors = 1;
  Call call = Call::kRun;
  Data data = Data::kExact;

  double prescale() const;
  double postscale() const;
  // For messages: "allreduce of 3 float16 tensors (prime) ...".
  std::string ToString() const;
};

// Elements of the first tensor of a case.
int64_t CountOf(const Case& c, const BackendUnderTest& backend);

// Every combination that means something.
std::vector<Case> FullGrid(const BackendUnderTest& backend);

// A subset in which every two values of two different dimensions meet, the same for the same seed.
std::vector<Case> PairwiseCover(const BackendUnderTest& backend, uint64_t seed);

}  // namespace ronde::conformance
