#include "core/control/watch.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>

#include <fmt/format.h>

#include "core/base/clock.h"
#include "core/base/futex.h"

namespace ronde {

Watch::Watch(Board board, int rank, std::function<void(int)> on_death)
    : board_(std::move(board)), rank_(rank), on_death_(std::move(on_death)) {}

Watch::~Watch() {
  Stop();
}

bool Watch::IsDead(const Board& board, int r) {
  return (board.alive(r).load(std::memory_order_seq_cst) & FUTEX_OWNER_DIED) != 0 &&
         board.phase(r).load(std::memory_order_seq_cst) != static_cast<uint32_t>(Phase::kLeft);
}

Status Watch::DeathOf(const Board& board, int r) {
  return Status::PeerLost(fmt::format(
      "rank {} (process {}) ended without leaving the job: killed, crashed, or exited without "
      "shutdown",
      r, board.process_id(r).load()));
}

Status Watch::Start() {
  // Signals are for the application's threads.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  thread_ = std::thread([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  started_.wait(0);
  if (started_.load() < 0) {
    thread_.join();
    return Status::Internal("the kernel refused a robust futex (set_robust_list)");
  }
  return Status::Ok();
}

void Watch::Stop() {
  if (!thread_.joinable()) return;
  board_.phase(rank_).store(static_cast<uint32_t>(Phase::kLeft), std::memory_order_seq_cst);
  stop_.store(true, std::memory_order_seq_cst);
  // The thread sleeps on its neighbour's word, or (alone) on its own; a wake there is harmless to
  // anybody else.
  while (stop_.load(std::memory_order_seq_cst)) {
    for (int r = 0; r < board_.num_ranks(); ++r) {
      FutexWake(&board_.alive(r), INT32_MAX, FutexScope::kHost);
    }
    timespec pause{0, 20'000};
    nanosleep(&pause, nullptr);
  }
  thread_.join();
}

int Watch::NextNeighbour() const {
  const int n = board_.num_ranks();
  for (int step = 1; step < n; ++step) {
    const int r = (rank_ + step) % n;
    if (board_.phase(r).load(std::memory_order_seq_cst) != static_cast<uint32_t>(Phase::kLeft)) {
      return r;
    }
  }
  return rank_;
}

void Watch::Run() {
  // The kernel's robust list: one node whose futex lies `futex_offset` bytes away, on the board.
  // This thread uses no robust mutex of the C library, so replacing its list is safe. The list dies
  // with the thread, hence lives on its stack.
  std::atomic<uint32_t>& own = board_.alive(rank_);
  robust_list node;
  robust_list_head head;
  head.list.next = &node;
  node.next = &head.list;
  head.futex_offset = reinterpret_cast<char*>(&own) - reinterpret_cast<char*>(&node);
  head.list_op_pending = nullptr;
  const bool registered = syscall(SYS_set_robust_list, &head, sizeof(head)) == 0;
  if (registered) {
    board_.process_id(rank_).store(static_cast<uint32_t>(getpid()), std::memory_order_seq_cst);
    own.store(static_cast<uint32_t>(syscall(SYS_gettid)), std::memory_order_seq_cst);
    board_.phase(rank_).store(static_cast<uint32_t>(Phase::kActive), std::memory_order_seq_cst);
  }
  started_.store(registered ? 1 : -1);
  started_.notify_all();
  if (!registered) return;

  bool reported = false;
  while (!stop_.load(std::memory_order_seq_cst)) {
    const int r = NextNeighbour();
    std::atomic<uint32_t>& word = board_.alive(r);
    const uint32_t seen = word.load(std::memory_order_seq_cst);
    if (r != rank_ && IsDead(board_, r) && !reported) {
      on_death_(r);
      reported = true;
    }
    if (reported || r == rank_) {
      // Nobody left to watch; sleep until Stop wakes the own word.
      FutexWait(&own, own.load(std::memory_order_seq_cst), kNsPerS, FutexScope::kHost);
      continue;
    }
    // The kernel wakes waiters of a dead owner only where this bit is set. A neighbour that has not
    // started yet has word 0.
    uint32_t expected = seen;
    if (seen != 0 && (seen & FUTEX_WAITERS) == 0) {
      if (!word.compare_exchange_strong(expected, seen | FUTEX_WAITERS,
                                        std::memory_order_seq_cst)) {
        continue;
      }
      expected = seen | FUTEX_WAITERS;
    }
    // The cap covers a neighbour that left between the two loads; it costs one wake-up a second.
    if (seen != 0) {
      FutexWait(&word, expected, kNsPerS, FutexScope::kHost);
    } else {
      FutexWait(&word, 0, 5 * kNsPerMs, FutexScope::kHost);
    }
  }
  own.store(0, std::memory_order_seq_cst);
  head.list.next = &head.list;  // an orderly end is no death
  FutexWake(&own, INT32_MAX, FutexScope::kHost);
  stop_.store(false, std::memory_order_seq_cst);
}

}  // namespace ronde
