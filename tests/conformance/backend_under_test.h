// BackendUnderTest: what a backend tells the conformance suite about itself.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace ronde::conformance {

struct BackendUnderTest {
  std::string name;              // letters and digits; becomes part of the test's name
  std::string rules;             // Config::rules that lead to this backend
  std::vector<int> rank_counts;  // jobs to run
  int64_t large_bytes = 0;       // of one tensor: more than one chunk
};

inline void PrintTo(const BackendUnderTest& backend, std::ostream* out) {
  *out << backend.name << " (rules '" << backend.rules << "')";
}

}  // namespace ronde::conformance
