// Token, doorbell and sleep under real threads: two ranks share a board; each has a progress thread
// and two users, who submit, help and park in lock-step rounds, so that one lost wake-up stops
// everything. Every sleep is capped; one that ends by its cap although its condition is true is a
// failure, and there must be none.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <barrier>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/model/token.h"

namespace ronde {
namespace {

constexpr int kRanks = 2, kLanes = 2;
// The progress thread's cap is the shorter one: it shall find what was lost, not a waiter that
// wakes and helps.
constexpr int kEpollCapMs = 500, kParkCapMs = 10'000;

// Widens the windows between two shared accesses, now and then past the end of a time slice.
void Jitter() {
  static std::atomic<uint32_t> seed{0};
  thread_local std::minstd_rand random(seed.fetch_add(1) + 1);
  const uint32_t kind = random() % 16;
  if (kind == 0) std::this_thread::yield();
  if (kind == 1) std::this_thread::sleep_for(std::chrono::microseconds(random() % 50));
  if (kind < 8) {
    for (volatile uint32_t i = random() % 200; i > 0;) i = i - 1;
  }
}

struct alignas(128) Word {
  std::atomic<uint64_t> value{0};
};

struct Board {
  std::array<std::array<Word, kLanes>, kRanks> arrived, reduced;
  struct alignas(128) Doze {
    std::atomic<uint32_t> value{Doorbell::kEpoll};
  };
  std::array<Doze, kRanks> doze;
};

struct Counters {
  std::atomic<uint64_t> lost{0}, parks{0}, epolls{0}, helped{0};
};

// One rank: engine state, queue, progress thread. Lives as long as its threads.
class Rank {
 public:
  Rank(int rank, Board* board, std::array<int, kRanks> event_fds, Counters* counters)
      : rank_(rank),
        board_(board),
        counters_(counters),
        event_fd_(event_fds[rank]),
        bells_{Doorbell(&board->doze[0].value, event_fds[0]),
               Doorbell(&board->doze[1].value, event_fds[1])},
        token_(bells_[rank]) {}

  void Submit(int lane, Completion* work, bool overlap) {
    works_[lane].store(work, std::memory_order_relaxed);
    queue_.fetch_or(1u << lane, std::memory_order_seq_cst);
    if (overlap) bells_[rank_].Ring();
  }

  // What a gradient hook does: publish the arrival without token or queue.
  void Mark(int lane, Completion* work) {
    works_[lane].store(work, std::memory_order_relaxed);
    Publish(&board_->arrived, lane, /*ring_self=*/true);
  }

  void Wait(Completion* work, int budget) {
    while (!work->done()) {
      if (token_.TryAcquire()) {
        counters_->helped.fetch_add(1, std::memory_order_relaxed);
        for (int i = 0; i < budget && !work->done(); ++i) Step();
        token_.Release([this] { return Step(); });
        if (work->done()) return;
      } else {
        bells_[rank_].Ring();
      }
      Jitter();
      bool timed_out;
      counters_->parks.fetch_add(1, std::memory_order_relaxed);
      if (work->Park(int64_t{kParkCapMs} * 1'000'000, &timed_out) && timed_out) ++counters_->lost;
    }
  }

  void ProgressThread(const std::atomic<bool>* stop) {
    const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    epoll_event interest{.events = EPOLLIN, .data = {}};
    ASSERT_EQ(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, event_fd_, &interest), 0);
    while (!stop->load()) {
      epoll_event event;
      const int ready = epoll_wait(epoll_fd, &event, 1, kEpollCapMs);
      counters_->epolls.fetch_add(1, std::memory_order_relaxed);
      bells_[rank_].Drain();
      Jitter();
      token_.Acquire();
      if (ready == 0 && AnyTrue() && !LateRing()) ++counters_->lost;
      while (Step()) {
      }
      token_.Release([this] { return Step(); });
    }
    close(epoll_fd);
  }

  const Doorbell& bell() const { return bells_[rank_]; }

 private:
  using Row = std::array<std::array<Word, kLanes>, kRanks>;

  void Publish(Row* row, int lane, bool ring_self) {
    const uint64_t value = (*row)[rank_][lane].value.load(std::memory_order_relaxed) + 1;
    (*row)[rank_][lane].value.store(value, std::memory_order_seq_cst);
    Jitter();
    if ((*row)[1 - rank_][lane].value.load(std::memory_order_seq_cst) < value) return;
    Jitter();
    bells_[1 - rank_].Ring();
    if (ring_self) bells_[rank_].Ring();
  }

  bool CanReduce(int lane) const {
    const uint64_t arrived = board_->arrived[rank_][lane].value.load(std::memory_order_seq_cst);
    return arrived > board_->reduced[rank_][lane].value.load(std::memory_order_seq_cst) &&
           board_->arrived[1 - rank_][lane].value.load(std::memory_order_seq_cst) >= arrived;
  }
  bool CanComplete(int lane) const {
    const uint64_t reduced = board_->reduced[rank_][lane].value.load(std::memory_order_seq_cst);
    return reduced > completed_[lane] &&
           board_->reduced[1 - rank_][lane].value.load(std::memory_order_seq_cst) >= reduced;
  }
  bool AnyTrue() const {
    bool any = queue_.load(std::memory_order_seq_cst) != 0;
    for (int lane = 0; lane < kLanes; ++lane) any = any || CanReduce(lane) || CanComplete(lane);
    return any;
  }
  // The publisher may have been interrupted between its store and its ring; then the ring still
  // comes.
  bool LateRing() const {
    pollfd fd{.fd = event_fd_, .events = POLLIN, .revents = 0};
    return poll(&fd, 1, kEpollCapMs) == 1;
  }

  bool Step() {
    bool did = false;
    if (queue_.load(std::memory_order_seq_cst) != 0) {
      const uint32_t taken = queue_.exchange(0, std::memory_order_seq_cst);
      for (int lane = 0; lane < kLanes; ++lane) {
        if (taken & (1u << lane)) Publish(&board_->arrived, lane, /*ring_self=*/false);
      }
      did = true;
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      if (CanReduce(lane)) {
        Publish(&board_->reduced, lane, /*ring_self=*/false);
        did = true;
      }
      if (CanComplete(lane)) {
        ++completed_[lane];
        works_[lane].load(std::memory_order_relaxed)->Complete();
        did = true;
      }
    }
    Jitter();  // the holder is past its last look
    return did;
  }

  const int rank_;
  Board* const board_;
  Counters* const counters_;
  const int event_fd_;
  const std::array<Doorbell, kRanks> bells_;
  Token token_;
  std::atomic<uint32_t> queue_{0};
  std::array<std::atomic<Completion*>, kLanes> works_{};
  std::array<uint64_t, kLanes> completed_{};  // guarded by token_
};

TEST(HandoverStress, NoSleepMissesItsCondition) {
  Board board;
  Counters counters;
  std::array<int, kRanks> event_fds;
  for (int& fd : event_fds) fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  std::array<std::unique_ptr<Rank>, kRanks> ranks;
  for (int r = 0; r < kRanks; ++r)
    ranks[r] = std::make_unique<Rank>(r, &board, event_fds, &counters);
  std::atomic<bool> stop{false};
  std::vector<std::thread> progress, users;
  for (auto& rank : ranks) progress.emplace_back([&] { rank->ProgressThread(&stop); });

  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  std::atomic<bool> last_round{false};
  uint64_t rounds = 0;
  std::barrier round(kRanks * kLanes, [&]() noexcept {
    ++rounds;
    last_round = std::chrono::steady_clock::now() >= end || counters.lost > 0;
  });
  std::array<std::array<std::unique_ptr<Completion>, kLanes>, kRanks> works;
  for (int r = 0; r < kRanks; ++r) {
    for (int lane = 0; lane < kLanes; ++lane) {
      users.emplace_back([&, r, lane] {
        std::mt19937 random(static_cast<uint32_t>(r * kLanes + lane));
        while (!last_round) {
          works[r][lane] = std::make_unique<Completion>();
          round.arrive_and_wait();
          Jitter();
          const uint32_t way = random() % 3;
          if (way == 0) ranks[r]->Mark(lane, works[r][lane].get());
          if (way != 0) ranks[r]->Submit(lane, works[r][lane].get(), /*overlap=*/way == 1);
          Jitter();
          ranks[r]->Wait(works[r][lane].get(), static_cast<int>(random() % 64));
          // Sometimes the lane's neighbour has a second waiter.
          if (random() % 4 == 0) ranks[r]->Wait(works[r][1 - lane].get(), 0);
          round.arrive_and_wait();
        }
      });
    }
  }
  for (std::thread& user : users) user.join();
  stop = true;
  for (auto& rank : ranks) rank->bell().RingAlways();
  for (std::thread& thread : progress) thread.join();
  for (int fd : event_fds) close(fd);

  RecordProperty("rounds", static_cast<int>(rounds / 2));
  printf("%lu rounds, %lu parked waits, %lu sleeps of progress threads, %lu times helped\n",
         rounds / 2, counters.parks.load(), counters.epolls.load(), counters.helped.load());
  EXPECT_EQ(counters.lost, 0u) << "a sleep ended by its cap although its condition was true";
  for (int r = 0; r < kRanks; ++r) {
    for (int lane = 0; lane < kLanes; ++lane) EXPECT_EQ(board.reduced[r][lane].value, rounds / 2);
  }
  // The test is worth something only if threads did sleep and did help.
  EXPECT_GT(counters.parks, 0u);
  EXPECT_GT(counters.helped, 0u);
}

}  // namespace
}  // namespace ronde
