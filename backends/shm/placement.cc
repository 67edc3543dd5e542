#include "backends/shm/placement.h"

#include <algorithm>

#include "core/base/clock.h"

namespace ronde::shm {
namespace {

constexpr int kRoundTrips = 48;
constexpr int kMaxPolls = 4000;   // some microseconds: the peer is not running just now
constexpr int64_t kNearNs = 100;  // one way; between the two the verdict stays
constexpr int64_t kFarNs = 150;
constexpr int64_t kProbeEveryNs = 50 * kNsPerMs;  // a probe takes 5 us near, 25 far

bool AwaitWord(const std::atomic<uint64_t>& word, uint64_t wanted) {
  for (int polls = 0; polls < kMaxPolls; ++polls) {
    if (word.load(std::memory_order_acquire) >= wanted) return true;
  }
  return false;
}

}  // namespace

void Placement::MaybeProbe(uint64_t hint) {
  if ((hint & kProbe) == 0 || num_ranks_ < 2) return;
  // Words only grow, so a peer that gave up in an earlier round cannot confuse this one.
  const uint64_t base = ++round_ * (kRoundTrips + 1);
  if (rank_ == 1) {
    for (int i = 1; i <= kRoundTrips; ++i) {
      const uint64_t word = base + static_cast<uint64_t>(i);
      if (!AwaitWord(staging_.probe(0), word)) return;
      staging_.probe(1).store(word, std::memory_order_release);
    }
  }
  if (rank_ != 0) return;
  int64_t best = INT64_MAX;
  constexpr int kBatch = 8;  // round trips between two looks at the clock
  int64_t start = NowNs();
  for (int i = 1; i <= kRoundTrips; ++i) {
    const uint64_t word = base + static_cast<uint64_t>(i);
    staging_.probe(0).store(word, std::memory_order_release);
    if (!AwaitWord(staging_.probe(1), word)) break;
    if (i % kBatch != 0) continue;
    const int64_t now = NowNs();
    best = std::min(best, (now - start) / (2 * kBatch));
    start = now;
  }
  last_probe_ns_ = NowNs();
  probe_due_ = false;
  if (best < kNearNs) far_ = false;
  if (best > kFarNs && best != INT64_MAX) far_ = true;
}

void Placement::Tick() {
  if (rank_ == 0 && !probe_due_) probe_due_ = NowNs() - last_probe_ns_ > kProbeEveryNs;
}

}  // namespace ronde::shm
