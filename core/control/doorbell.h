// Doorbell: wakes the engines of ranks that sleep, and only those.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "core/base/fd.h"
#include "core/control/board.h"
#include "ronde/status.h"

namespace ronde {

// Owned by the Runtime; any thread. Publishing works like this: store the word (sequentially
// consistent), look whether the condition is now complete, and if so ring. A sleeper announces its
// doze (sequentially consistent) and then looks at all its conditions again. So either the
// publisher sees the doze, or the sleeper sees the word.
class Doorbell {
 public:
  // eventfds[r] belongs to rank r's Runtime.
  Doorbell(Board board, int rank, std::vector<UniqueFd> eventfds)
      : board_(std::move(board)), rank_(rank), eventfds_(std::move(eventfds)) {}

  // Wakes rank r if it dozes. `only_wanted`: not unless a thread of it is parked in a wait.
  void Ring(int r, bool only_wanted = false) const;
  // Every rank but this one.
  void RingOthers(bool only_wanted = false) const;
  // Every rank, awake or not (a death, an abort, a farewell).
  void RingAll() const;
  // Wakes this rank's own progress thread.
  void RingSelf() const { Write(rank_); }
  // Resets this rank's eventfd after it fired.
  void Drain() const;

  int own_fd() const { return eventfds_[static_cast<size_t>(rank_)].get(); }
  int64_t rings() const { return rings_.load(std::memory_order_relaxed); }

 private:
  void Write(int r) const;

  const Board board_;
  const int rank_;
  const std::vector<UniqueFd> eventfds_;
  mutable std::atomic<int64_t> rings_{0};
};

}  // namespace ronde
