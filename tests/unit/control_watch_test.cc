// The board's checks, and the watch: the death of the thread that holds a rank's futex is the death
// of the rank.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "core/control/abort.h"
#include "core/control/board.h"
#include "core/control/watch.h"

namespace ronde {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kStaging = 1 << 16;

TEST(BoardTest, OnlyTheRightMemoryIsABoard) {
  MappingCache mappings;
  Result<UniqueFd> fd = Board::Create(3, kStaging, 42, "job");
  ASSERT_TRUE(fd.ok());
  const Result<Board> board = Board::Attach(fd->get(), &mappings, "job");
  ASSERT_TRUE(board.ok());
  EXPECT_EQ(board->num_ranks(), 3);
  EXPECT_EQ(board->epoch(), 42u);
  EXPECT_EQ(Board::Attach(fd->get(), &mappings, "other job").status().code(), Code::kInternal);
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{1} << 20}) {
    Result<UniqueFd> zeros = CreateSharedMemory("zeros", bytes);
    ASSERT_TRUE(zeros.ok());
    EXPECT_EQ(Board::Attach(zeros->get(), &mappings, "job").status().code(), Code::kInternal);
  }
  EXPECT_FALSE(Board::Attach(-1, &mappings, "job").ok());
}

TEST(BoardTest, PartsDoNotOverlap) {
  MappingCache mappings;
  Result<UniqueFd> fd = Board::Create(2, kStaging, 1, "job");
  ASSERT_TRUE(fd.ok());
  const Board board = *Board::Attach(fd->get(), &mappings, "job");
  // Every part is filled with a value of its own, and then still has it.
  std::vector<std::pair<std::byte*, size_t>> parts;
  for (int lane = 0; lane < kNumLanes; ++lane) {
    for (const uint64_t seq : {0, 1}) {
      for (int r = 0; r < 2; ++r) {
        parts.emplace_back(board.payload(lane, seq, r), kCellPayload);
        parts.emplace_back(board.descriptor(lane, seq, r), kDescriptorBytes);
      }
    }
    parts.emplace_back(board.staging(lane), kStaging);
  }
  for (int r = 0; r < 2; ++r) {
    parts.emplace_back(reinterpret_cast<std::byte*>(board.detail(r)), Board::kDetailBytes);
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    std::fill_n(parts[i].first, parts[i].second, static_cast<std::byte>(i + 1));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].first[0], static_cast<std::byte>(i + 1)) << i;
    EXPECT_EQ(parts[i].first[parts[i].second - 1], static_cast<std::byte>(i + 1)) << i;
  }
  EXPECT_EQ(board.abort_word().load(), 0u);
  EXPECT_EQ(board.occurrences(1, kMaxIds - 1).load(), 0u);
  EXPECT_EQ(board.claim(0).load(), 0u);
  EXPECT_EQ(board.log_slot(0).load(), 0u);
}

TEST(AbortTest, TheFirstReportStands) {
  MappingCache mappings;
  Result<UniqueFd> fd = Board::Create(2, kStaging, 1, "job");
  const Board board = *Board::Attach(fd->get(), &mappings, "job");
  GroupAbort zero(board, 0), one(board, 1);
  EXPECT_TRUE(zero.status().ok());
  EXPECT_EQ(one.Raise(0, Status::PeerLost("first")).ToString(), "PeerLost: first");
  EXPECT_EQ(zero.Raise(1, Status::Timeout("second")).ToString(), "PeerLost: first");
  EXPECT_EQ(one.Raise(1, Status::Timeout("third")).ToString(), "PeerLost: first");
  EXPECT_TRUE(zero.raised());
}

TEST(AbortTest, LongReportsAreCut) {
  MappingCache mappings;
  Result<UniqueFd> fd = Board::Create(2, kStaging, 1, "job");
  const Board board = *Board::Attach(fd->get(), &mappings, "job");
  GroupAbort abort(board, 1);
  (void)abort.Raise(0, Status::Internal(std::string(5000, 'x')));
  EXPECT_EQ(abort.status().message().size(), Board::kDetailBytes - 1);
}

// A rank of its own process, whose watch thread runs until the process ends.
pid_t RankProcess(const Board& board, int rank, const std::function<void()>& then) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  Watch watch(board, rank, [](int) {});
  const bool started = watch.Start().ok();
  if (started) then();
  watch.Stop();
  _exit(started ? 0 : 1);
}

class WatchTest : public ::testing::Test {
 protected:
  WatchTest() {
    Result<UniqueFd> fd = Board::Create(2, kStaging, 1, "job");
    board_ = *Board::Attach(fd->get(), &mappings_, "job");
  }
  void AwaitStarted(int r) const {
    while (board_.phase(r).load() == static_cast<uint32_t>(Phase::kJoining)) {
      std::this_thread::yield();
    }
  }

  MappingCache mappings_;
  Board board_;
};

TEST_F(WatchTest, AKilledProcessIsReportedOnce) {
  const pid_t pid = RankProcess(board_, 1, [] { pause(); });
  AwaitStarted(1);
  std::atomic<int> deaths{0};
  std::atomic<int> dead{-1};
  Watch watch(board_, 0, [&](int r) {
    dead = r;
    ++deaths;
  });
  ASSERT_TRUE(watch.Start().ok());
  EXPECT_FALSE(Watch::IsDead(board_, 1));
  kill(pid, SIGKILL);
  while (deaths == 0) std::this_thread::yield();
  waitpid(pid, nullptr, 0);
  EXPECT_EQ(dead, 1);
  EXPECT_TRUE(Watch::IsDead(board_, 1));
  EXPECT_THAT(Watch::DeathOf(board_, 1).ToString(),
              AllOf(HasSubstr("PeerLost"), HasSubstr("rank 1"), HasSubstr(std::to_string(pid))));
  watch.Stop();
  EXPECT_EQ(deaths, 1);
}

TEST_F(WatchTest, ADeathBeforeTheWatchBeganIsSeenToo) {
  const pid_t pid = RankProcess(board_, 1, [] { pause(); });
  AwaitStarted(1);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  std::atomic<int> deaths{0};
  Watch watch(board_, 0, [&](int) { ++deaths; });
  ASSERT_TRUE(watch.Start().ok());
  while (deaths == 0) std::this_thread::yield();
  watch.Stop();
}

TEST_F(WatchTest, LeavingIsNoDeath) {
  const pid_t pid = RankProcess(board_, 1, [] {});
  AwaitStarted(1);
  std::atomic<int> deaths{0};
  Watch watch(board_, 0, [&](int) { ++deaths; });
  ASSERT_TRUE(watch.Start().ok());
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  watch.Stop();
  watch.Stop();
  EXPECT_EQ(deaths, 0);
  EXPECT_FALSE(Watch::IsDead(board_, 1));
  EXPECT_EQ(board_.phase(0).load(), static_cast<uint32_t>(Phase::kLeft));
}

}  // namespace
}  // namespace ronde
