// Placement: how far apart the cores of ranks 0 and 1 are right now.
//
// Virtual machines move cores between placements in which copies through the caches differ
// fourfold, so the way of staging is chosen by a short cache-line ping-pong, repeated some times a
// second as part of a large operation.
#pragma once

#include <cstdint>

#include "backends/shm/staging.h"

namespace ronde::shm {

// Rank 0 keeps the verdict and tells the others with its cells.
class Placement {
 public:
  Placement(const Staging& staging, int rank, int num_ranks)
      : staging_(staging), rank_(rank), num_ranks_(num_ranks) {}

  // Rank 0's hint for its next cell: bit 0 the verdict (far), bit 1 "probe at the next staged
  // operation".
  uint64_t Hint() const { return (far_ ? kFar : 0) | (probe_due_ ? kProbe : 0); }
  static bool IsFar(uint64_t hint) { return (hint & kFar) != 0; }

  // Runs the ping-pong if the agreed hint asks for it; on ranks 0 and 1 only. Takes some
  // microseconds, and gives up after a bounded number of polls when the other side does not run.
  void MaybeProbe(uint64_t hint);
  // Called after each staged operation: decides whether the next one probes.
  void Tick();

 private:
  static constexpr uint64_t kFar = 1;
  static constexpr uint64_t kProbe = 2;

  const Staging& staging_;
  const int rank_;
  const int num_ranks_;
  uint64_t round_ = 0;
  bool far_ = false;
  bool probe_due_ = true;
  int64_t last_probe_ns_ = 0;
};

}  // namespace ronde::shm
