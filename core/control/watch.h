// Watch: the thread by which a rank is known to be alive, and which notices when another one dies.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "core/control/board.h"
#include "ronde/status.h"

namespace ronde {

// The thread holds this rank's robust futex: when the process dies, however and however large, the
// kernel marks the word and wakes one waiter within a millisecond. The ranks form a ring in which
// each watches its next live neighbour; as long as anybody lives, some live rank watches the first
// dead one after it, and its report reaches everybody through the abort word.
//
// Owned by the Runtime. Start and Stop by one thread.
class Watch {
 public:
  // `on_death(r)` runs on the watch thread, once, when rank r ended without having left.
  Watch(Board board, int rank, std::function<void(int)> on_death);
  ~Watch();

  // Starts the thread; this rank counts as active when it returns.
  Status Start();
  // Announces the departure (phase kLeft), then ends and joins the thread. Idempotent.
  void Stop();

  // A rank that is dead (its futex says so) and had not left.
  static bool IsDead(const Board& board, int r);
  // What everybody is told then.
  static Status DeathOf(const Board& board, int r);

 private:
  void Run();
  int NextNeighbour() const;

  const Board board_;
  const int rank_;
  const std::function<void(int)> on_death_;
  std::atomic<bool> stop_{false};
  std::atomic<int> started_{0};  // 0 not yet, 1 holding the futex, -1 failed
  std::thread thread_;
};

}  // namespace ronde
