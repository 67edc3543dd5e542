// The hand-over of docs/protocols.md: doorbell, token and the word a waiter sleeps on. handover.pml
// is the same protocol for Spin; whoever changes one changes the other.
#ifndef RONDE_TESTS_MODEL_TOKEN_H_
#define RONDE_TESTS_MODEL_TOKEN_H_

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <mutex>

#if defined(__clang__)
#define RONDE_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define RONDE_THREAD_ANNOTATION(x)
#endif

namespace ronde {

// Wakes one rank's progress thread. A view: the word lies on the board, the descriptor belongs to
// that rank's Runtime. Any thread of any process may ring; only the token's holder writes the word.
class Doorbell {
 public:
  enum : uint32_t { kAwake = 0, kEpoll = 1 };

  Doorbell(std::atomic<uint32_t>* doze, int event_fd) : doze_(doze), event_fd_(event_fd) {}

  // To be called after a seq_cst store that may have made a condition of that rank true: a word on
  // the board, or an entry in the rank's own queue. No system call while somebody steps that rank's
  // engine. Never blocks.
  void Ring() const {
    if (doze_->load(std::memory_order_seq_cst) == kEpoll) RingAlways();
  }

  void RingAlways() const {
    const uint64_t one = 1;
    // Fails only when the counter is full, and then the reader is awake already.
    [[maybe_unused]] const ssize_t written = write(event_fd_, &one, sizeof one);
  }

  // Empties the counter, so that epoll_wait sleeps again. Called by the progress thread before it
  // takes the token: a ring that comes later is kept, and what an earlier one announced is seen by
  // the Step that follows in any case.
  void Drain() const {
    uint64_t count;
    [[maybe_unused]] const ssize_t got = read(event_fd_, &count, sizeof count);
  }

 private:
  friend class Token;
  std::atomic<uint32_t>* doze_;
  int event_fd_;
};

// The right to step the engine; guards all engine state. Owned by the engine and as long-lived. The
// progress thread calls Acquire (and then always steps before it sleeps again: a thread that gives
// up here loses wake-ups), any other thread TryAcquire. Nobody may sleep while holding it.
class RONDE_THREAD_ANNOTATION(capability("token")) Token {
 public:
  explicit Token(Doorbell own) : own_(own) {}
  Token(const Token&) = delete;
  Token& operator=(const Token&) = delete;

  void Acquire() RONDE_THREAD_ANNOTATION(acquire_capability()) {
    mutex_.lock();
    own_.doze_->store(Doorbell::kAwake, std::memory_order_relaxed);
  }

  // A caller that gets false, and will go to sleep, first rings its own doorbell: the holder may be
  // past its last look.
  bool TryAcquire() RONDE_THREAD_ANNOTATION(try_acquire_capability(true)) {
    if (!mutex_.try_lock()) return false;
    own_.doze_->store(Doorbell::kAwake, std::memory_order_relaxed);
    return true;
  }

  // `step` is one Engine::Step: it evaluates every condition with seq_cst loads, returns false only
  // if none was true. What becomes true after that look, rings, because sleep was announced before
  // it.
  template <typename Step>
  void Release(Step&& step) RONDE_THREAD_ANNOTATION(release_capability()) {
    own_.doze_->store(Doorbell::kEpoll, std::memory_order_seq_cst);
    const bool more = step();
    mutex_.unlock();
    // The progress thread goes on; a user's thread is not kept for other people's work.
    if (more) own_.RingAlways();
  }

 private:
  std::mutex mutex_;
  const Doorbell own_;
};

// Completion of one work: a single word, so that no store-then-load pair is needed. Any number of
// waiters, one completer. Complete does not read the word after it set it, but wakes by its
// address: the engine keeps the work alive until Complete has returned.
class Completion {
 public:
  bool done() const { return word_.load(std::memory_order_acquire) == kDone; }

  void Complete() {
    if (word_.exchange(kDone, std::memory_order_acq_rel) != kParked) return;
    syscall(SYS_futex, address(), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }

  // Sleeps until done, at most `timeout_ns` (so that the binding can look at signals). Returns
  // done(); `timed_out` tells why it returned. May return early, with neither.
  bool Park(int64_t timeout_ns, bool* timed_out) {
    *timed_out = false;
    uint32_t seen = kPending;
    if (!word_.compare_exchange_strong(seen, kParked, std::memory_order_acq_rel) && seen == kDone)
      return true;
    const timespec timeout{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
    const long rc =
        syscall(SYS_futex, address(), FUTEX_WAIT_PRIVATE, kParked, &timeout, nullptr, 0);
    *timed_out = rc == -1 && errno == ETIMEDOUT;
    return done();
  }

 private:
  enum : uint32_t { kPending, kParked, kDone };
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  uint32_t* address() { return reinterpret_cast<uint32_t*>(&word_); }

  std::atomic<uint32_t> word_{kPending};
};

}  // namespace ronde

#endif  // RONDE_TESTS_MODEL_TOKEN_H_
