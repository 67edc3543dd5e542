// GroupAbort: the first group error, agreed by all ranks of a board through one word.
#pragma once

#include <mutex>

#include "core/control/board.h"
#include "ronde/status.h"

namespace ronde {

// One per rank and board; owned by the Runtime. Any thread.
class GroupAbort {
 public:
  GroupAbort(Board board, int rank) : board_(std::move(board)), rank_(rank) {}

  // Sets the group's error unless there is one already; returns the one that stands. `culprit` is
  // the rank that caused it. Wakes nobody: the caller rings.
  Status Raise(int culprit, const Status& error);

  // One load, no fence on the fast path.
  bool raised() const { return board_.abort_word().load(std::memory_order_seq_cst) != 0; }
  // The group's error; OK while there is none.
  Status status() const;

 private:
  const Board board_;
  const int rank_;
  std::mutex mutex_;  // the rank's text is written by one thread
  bool reported_ = false;
};

}  // namespace ronde
