#include "tuning/bench/statistics.h"

#include <numeric>

#include <gmock/gmock.h>

#include "tuning/bench/block_plan.h"
#include "tuning/bench/placement.h"

namespace ronde::bench {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(BenchStatisticsTest, MedianOfOddAndEvenCounts) {
  EXPECT_DOUBLE_EQ(Summarize({3, 1, 2}).median, 2);
  EXPECT_DOUBLE_EQ(Summarize({4, 1, 3, 2}).median, 2.5);
  EXPECT_DOUBLE_EQ(Summarize({7}).p95, 7);
  EXPECT_DOUBLE_EQ(Summarize({}).max, 0);
}

TEST(BenchStatisticsTest, PercentileIsNearestRank) {
  for (const auto& [count, p95] : {std::pair{20, 19}, {21, 20}, {100, 95}, {10, 10}}) {
    std::vector<double> values(static_cast<size_t>(count));
    std::iota(values.rbegin(), values.rend(), 1.0);
    const Summary summary = Summarize(values);
    EXPECT_DOUBLE_EQ(summary.p95, p95) << count;
    EXPECT_DOUBLE_EQ(summary.min, 1);
    EXPECT_DOUBLE_EQ(summary.max, count);
  }
}

TEST(BenchStatisticsTest, GroupTimesFollowTheLastRank) {
  // Rank 1 finishes the first sample late, rank 0 the second: no skew is counted twice.
  const std::vector<std::vector<int64_t>> stamps = {{100, 150, 260}, {110, 180, 230}};
  EXPECT_THAT(GroupTimes(stamps), ElementsAre(180 - 110, 260 - 180));
  EXPECT_THAT(GroupTimes({}), IsEmpty());
}

TEST(BenchStatisticsTest, ClassesLeaveAGap) {
  EXPECT_EQ(ClassifyPingPong(0), Placement::kNear);
  EXPECT_EQ(ClassifyPingPong(99.9), Placement::kNear);
  EXPECT_EQ(ClassifyPingPong(100), std::nullopt);
  EXPECT_EQ(ClassifyPingPong(150), std::nullopt);
  EXPECT_EQ(ClassifyPingPong(150.1), Placement::kFar);
}

TEST(BenchStatisticsTest, CoresOfAPairDifferWherePossible) {
  const auto pick = [](const std::vector<int>& first, const std::vector<int>& last) {
    const CorePair pair = PickCores(first, last);
    return std::pair{pair.a, pair.b};
  };
  EXPECT_EQ(pick({0, 1, 2}, {0, 1, 2}), (std::pair{0, 2}));
  EXPECT_EQ(pick({3}, {5}), (std::pair{3, 5}));
  EXPECT_EQ(pick({3, 4}, {2, 3}), (std::pair{4, 3}));
  EXPECT_EQ(pick({3}, {2, 3}), (std::pair{3, 2}));
  EXPECT_EQ(pick({3}, {3}), (std::pair{3, 3}));
}

TEST(BenchStatisticsTest, PingPongIsPositiveBetweenTwoCores) {
  const std::vector<int> cpus = UsableCpus();
  ASSERT_FALSE(cpus.empty());
  EXPECT_EQ(PingPongNs(cpus[0], cpus[0]), 0);
  if (cpus.size() > 1) {
    EXPECT_GT(PingPongNs(cpus[0], cpus[1]), 1);
  }
}

TEST(BenchStatisticsTest, ShortCallsAreTimedTogetherAndLongOnesAlone) {
  const BlockPlan fast = PlanBlock(100, 20e6);
  EXPECT_EQ(fast.inner, 100);
  EXPECT_EQ(fast.samples, 200);
  EXPECT_GE(fast.warmup, 1000);
  const BlockPlan slow = PlanBlock(50e6, 20e6);
  EXPECT_EQ(slow.inner, 1);
  EXPECT_EQ(slow.samples, 1);
  EXPECT_EQ(slow.warmup, 1);
  EXPECT_GE(PlanBlock(0, 20e6).inner, 1);
}

}  // namespace
}  // namespace ronde::bench
