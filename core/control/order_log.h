// OrderLog: the one order in which named operations run, agreed without a leader.
//
// Every rank counts, per id, how often it has submitted the operation. Whoever sees that all ranks
// have reached the next count claims the id by compare-and-swap and appends it to the log, perhaps
// together with others that are ready too (a batch, which is fused). Everybody consumes the log in
// order, so batches never depend on a reader's timing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/control/board.h"

namespace ronde {

// One per rank and board; used by the token's holder.
class OrderLog {
 public:
  OrderLog(Board board, int rank) : board_(std::move(board)), rank_(rank), counts_(kMaxIds) {}

  // One more occurrence of `id` is here.
  void Announce(uint32_t id);
  // Has every rank announced what this one has, and nobody claimed it yet?
  bool Complete(uint32_t id) const;
  // The right to append `id`; exactly one rank gets it per occurrence. REQUIRES: Complete(id).
  bool Claim(uint32_t id);
  // Appends claimed ids as one batch.
  void Append(std::span<const uint32_t> batch);
  // The next batch in the order, once it is there.
  bool Next(std::vector<uint32_t>* batch);
  // Position after the last batch that Next returned.
  uint64_t cursor() const { return cursor_; }

  // Ranks that have announced fewer occurrences of `id` than this one.
  std::vector<int> Missing(uint32_t id) const;

 private:
  const Board board_;
  const int rank_;
  std::vector<uint32_t> counts_;  // of this rank
  uint64_t cursor_ = 0;
};

}  // namespace ronde
