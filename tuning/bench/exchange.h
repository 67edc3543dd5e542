// What the ranks of a benchmark tell each other between blocks, through the Runtime itself.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ronde/runtime.h"

namespace ronde::bench {

// One rank's side; every method is collective and blocks. Owned by the benchmark, one thread; the
// Runtime must outlive it. Uses unnamed operations.
class Exchange {
 public:
  explicit Exchange(Runtime* runtime) : runtime_(runtime) {}

  // Rank 0's values replace everybody's.
  Status Broadcast(std::span<int64_t> values);
  // The same number of values from each rank, by rank.
  Result<std::vector<std::vector<int64_t>>> Gather(std::span<const int64_t> values);
  // The sum over ranks.
  Result<int64_t> Sum(int64_t value);
  // Rank 0's text, of at most 255 bytes.
  Result<std::string> BroadcastText(const std::string& text);

 private:
  Runtime* const runtime_;
};

}  // namespace ronde::bench
