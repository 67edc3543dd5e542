// CaseData: what every rank gives to a case, and what every rank must get.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/conformance/case.h"
#include "tests/unit/kernels_reference.h"

namespace ronde::conformance {

using kernels::reference::Bytes;

// Constant after construction; read by all ranks' threads.
struct CaseData {
  CaseData(const Case& c, const BackendUnderTest& backend, uint64_t seed);

  Case c;
  int root = 0;
  // [rank][tensor]
  std::vector<std::vector<Shape>> shapes;
  std::vector<std::vector<Bytes>> inputs;
  std::vector<std::vector<Bytes>> expected;
  std::vector<std::vector<int64_t>> splits;  // [rank][receiver], of kAlltoall

 private:
  void MakeInputs(int64_t count, uint64_t seed);
  void Expect();
  Bytes Rows(int rank, size_t tensor, int64_t first, int64_t rows) const;
  Bytes Reduced(size_t tensor) const;
};

}  // namespace ronde::conformance
