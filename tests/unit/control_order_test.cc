// The order log and the coordinator: pure state, driven rank by rank.
#include <gmock/gmock.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/control/coordinator.h"
#include "core/control/description.h"
#include "core/control/order_log.h"

namespace ronde {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kStaging = 1 << 16;

Board MakeBoard(int ranks) {
  MappingCache mappings;
  Result<UniqueFd> fd = Board::Create(ranks, kStaging, 1, "job");
  EXPECT_TRUE(fd.ok());
  Result<Board> board = Board::Attach(fd->get(), &mappings, "job");
  EXPECT_TRUE(board.ok());
  return *board;
}

class OrderLogTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 3;
  OrderLogTest() : board_(MakeBoard(kRanks)) {
    for (int r = 0; r < kRanks; ++r) logs_.push_back(std::make_unique<OrderLog>(board_, r));
  }
  OrderLog& log(int r) { return *logs_[static_cast<size_t>(r)]; }

  const Board board_;
  std::vector<std::unique_ptr<OrderLog>> logs_;
};

TEST_F(OrderLogTest, TheLastToAnnounceClaimsAndEverybodyReads) {
  log(0).Announce(7);
  EXPECT_FALSE(log(0).Complete(7));
  EXPECT_THAT(log(0).Missing(7), ElementsAre(1, 2));
  log(2).Announce(7);
  log(1).Announce(7);
  EXPECT_TRUE(log(0).Complete(7));
  EXPECT_TRUE(log(1).Complete(7));
  EXPECT_TRUE(log(1).Claim(7));
  EXPECT_FALSE(log(0).Claim(7));  // exactly one
  EXPECT_FALSE(log(2).Complete(7));
  std::vector<uint32_t> batch;
  EXPECT_FALSE(log(0).Next(&batch));
  log(1).Append(std::vector<uint32_t>{7});
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_TRUE(log(r).Next(&batch));
    EXPECT_THAT(batch, ElementsAre(7));
    EXPECT_FALSE(log(r).Next(&batch));
  }
}

// One rank's second occurrence completes nothing of the others' first.
TEST_F(OrderLogTest, OccurrencesAreCounted) {
  for (uint32_t round = 1; round <= 3; ++round) {
    for (int r = 0; r < kRanks; ++r) {
      EXPECT_FALSE(r > 0 && log(r - 1).Complete(5));
      log(r).Announce(5);
    }
    EXPECT_TRUE(log(0).Complete(5));
    EXPECT_TRUE(log(0).Claim(5));
    log(0).Append(std::vector<uint32_t>{5});
    EXPECT_EQ(board_.claim(5).load(), round);
  }
}

// Many laps of the log, ranks reading at their own pace, batches of all sizes.
TEST_F(OrderLogTest, AllRanksReadTheSameBatches) {
  std::mt19937 random(1);
  std::vector<std::vector<uint32_t>> appended;
  std::vector<size_t> read(kRanks);
  size_t entries = 0;
  while (entries < 4 * kLogSlots) {
    std::vector<uint32_t> batch;
    for (uint32_t i = 0; i <= random() % 50; ++i)
      batch.push_back(static_cast<uint32_t>(random()) % kMaxIds);
    log(static_cast<int>(random() % kRanks)).Append(batch);
    entries += batch.size();
    appended.push_back(batch);
    for (int r = 0; r < kRanks; ++r) {
      if (random() % 4 == 0) continue;
      std::vector<uint32_t> got;
      size_t& next = read[static_cast<size_t>(r)];
      while (log(r).Next(&got)) ASSERT_EQ(got, appended[next++]);
      ASSERT_EQ(next, appended.size());
    }
  }
}

wire::Proposal Propose(const std::string& name, int64_t count, int code = 0) {
  Description description;
  description.kind = OpKind::kAllreduce;
  description.tensors.push_back({"", DType::kFloat32, Shape::Of(std::vector<int64_t>{count})});
  wire::Proposal proposal;
  proposal.set_subject(wire::SUBJECT_NAME);
  proposal.set_key(name);
  proposal.set_code(static_cast<uint32_t>(code));
  if (code != 0) proposal.set_error("no memory");
  ToWire(description, proposal.mutable_descriptor());
  return proposal;
}

class CoordinatorTest : public ::testing::Test {
 protected:
  CoordinatorTest() : board_(MakeBoard(2)), coordinator_(board_) {}

  // The decision on a name of which both ranks say the same.
  wire::Decision Agree(const std::string& name) {
    EXPECT_TRUE(coordinator_.Add(1, Propose(name, 4), {}).empty());
    const auto ready = coordinator_.Add(0, Propose(name, 4), {});
    EXPECT_EQ(ready.size(), 1u);
    return ready.empty() ? wire::Decision() : ready[0].decision;
  }

  const Board board_;
  Coordinator coordinator_;
};

TEST_F(CoordinatorTest, DecidesWhenAllHaveProposed) {
  EXPECT_TRUE(coordinator_.empty());
  EXPECT_TRUE(coordinator_.Add(1, Propose("x", 4), {}).empty());
  // A second proposal of the same rank changes nothing.
  EXPECT_TRUE(coordinator_.Add(1, Propose("x", 5), {}).empty());
  const auto open = coordinator_.open();
  ASSERT_EQ(open.size(), 1u);
  EXPECT_EQ(open[0].what, "allreduce 'x'");
  EXPECT_THAT(open[0].present, ElementsAre(1));
  EXPECT_THAT(open[0].missing, ElementsAre(0));
  const auto ready = coordinator_.Add(0, Propose("x", 4), {});
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(ready[0].decision.code(), 0u);
  EXPECT_FALSE(ready[0].decision.once());
  EXPECT_TRUE(coordinator_.empty());
}

TEST_F(CoordinatorTest, NamesRanksAndValues) {
  coordinator_.Add(0, Propose("x", 4), {});
  const auto ready = coordinator_.Add(1, Propose("x", 5), {});
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(ready[0].decision.code(), static_cast<uint32_t>(Code::kMismatch));
  EXPECT_EQ(ready[0].decision.error(),
            "allreduce 'x': rank 1 sent float32 [5], rank 0 sent float32 [4]");
}

TEST_F(CoordinatorTest, OneRanksFailureIsEverybodys) {
  coordinator_.Add(0, Propose("x", 4), {});
  const auto ready = coordinator_.Add(1, Propose("x", 4, static_cast<int>(Code::kOutOfMemory)), {});
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(ready[0].decision.code(), static_cast<uint32_t>(Code::kOutOfMemory));
  EXPECT_THAT(ready[0].decision.error(), HasSubstr("rank 1: no memory"));
}

TEST_F(CoordinatorTest, ADescriptorThatMakesNoSenseIsAnError) {
  wire::Proposal odd = Propose("x", 4);
  odd.mutable_descriptor()->set_kind(99);
  coordinator_.Add(0, odd, {});
  const auto ready = coordinator_.Add(1, Propose("x", 4), {});
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(ready[0].decision.code(), static_cast<uint32_t>(Code::kInternal));
}

// Beyond the cache ids serve one operation, and come back when all ranks have consumed it.
TEST_F(CoordinatorTest, IdsForOneUse) {
  for (uint32_t i = 0; i < kCachedIds; ++i) {
    const wire::Decision decision = Agree("cached" + std::to_string(i));
    ASSERT_EQ(decision.id(), i);
    ASSERT_FALSE(decision.once());
  }
  const uint32_t once = kMaxIds - kCachedIds;
  for (uint32_t i = 0; i < once; ++i) {
    const wire::Decision decision = Agree("once" + std::to_string(i));
    ASSERT_EQ(decision.code(), 0u) << decision.error();
    ASSERT_TRUE(decision.once());
    ASSERT_GE(decision.id(), kCachedIds);
  }
  EXPECT_EQ(Agree("too many").code(), static_cast<uint32_t>(Code::kUnsupported));
  // Rank 0 has consumed one, the other rank not yet.
  coordinator_.OnceConsumed(kCachedIds + 3, 10);
  board_.log_cursor(0).store(10);
  board_.log_cursor(1).store(9);
  EXPECT_EQ(Agree("still").code(), static_cast<uint32_t>(Code::kUnsupported));
  board_.log_cursor(1).store(10);
  EXPECT_EQ(Agree("now").id(), kCachedIds + 3);
  EXPECT_EQ(Agree("again").code(), static_cast<uint32_t>(Code::kUnsupported));
}

}  // namespace
}  // namespace ronde
