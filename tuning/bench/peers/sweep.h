// The interleaved measurement of all candidates, size by size, block by block.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ronde/status.h"
#include "tuning/bench/limit.h"
#include "tuning/bench/peers/peer_group.h"
#include "tuning/bench/placement.h"

namespace ronde::bench {

// The columns of the table and of the JSON.
enum class Column : uint8_t {
  kRondePrivate,
  kRondeArena,
  kOpenMpi,
  kGloo,
  kLimitPrivate,
  kLimitArena,
};
inline constexpr int kNumColumns = 6;
// "ronde_private_us" and so on: the key in the JSON.
std::string_view ColumnKey(Column column);

// One size in one placement class; medians in us, absent where there is no such candidate.
struct PeersRow {
  int64_t bytes = 0;
  Placement placement = Placement::kNear;
  std::array<std::optional<double>, kNumColumns> median_us;

  std::optional<double> at(Column column) const { return median_us[static_cast<size_t>(column)]; }
};

// What is measured in a column.
struct SweepCandidate {
  Column column;
  PeerGroup* group;
  Buffers buffers;
};

// Rounds of one size: in each, every candidate runs one block, with the ping-pong of two cores
// before the first and after each. A round in which the class changed, or was none, is dropped.
//
// Owned by the orchestrator; its main thread only; every candidate's group must outlive it.
class Sweep {
 public:
  // `rounds` good ones are wanted per size, of at most three times as many tries.
  Sweep(std::vector<SweepCandidate> candidates, int rounds);

  // Blocks. Rows by class, near first; none when every round was dropped.
  Result<std::vector<PeersRow>> Measure(int64_t bytes);

  // Rounds dropped so far, and the last ping-pong in ns.
  int dropped() const { return dropped_; }
  double last_ping_pong_ns() const { return ping_pong_ns_; }

 private:
  using Times = std::array<std::vector<double>, kNumColumns>;  // ns, by column

  Status PlanBlocks(int64_t bytes);
  // Adds the times of one round to `*times` of its class.
  Status RunRound(std::array<Times, kNumPlacements>* times);
  std::optional<Placement> MeasureClass();

  const std::vector<SweepCandidate> candidates_;
  const int rounds_;
  const CorePair cores_;
  std::vector<BlockPlan> plans_;  // by candidate
  double round_ns_ = 0;           // what one round takes, about
  int dropped_ = 0;
  double ping_pong_ns_ = 0;
};

}  // namespace ronde::bench
