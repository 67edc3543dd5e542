// The bucket planner.
#include <gmock/gmock.h>

#include <random>
#include <vector>

#include "core/plan/buckets.h"

namespace ronde {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(BucketsTest, FillsInOrderUpToTheSize) {
  const std::vector<PlanTensor> tensors(5, {100, DType::kFloat32});  // 448 bytes each, padded
  const BucketPlan plan = PlanBuckets(tensors, 1000);
  ASSERT_EQ(plan.buckets.size(), 3u);
  EXPECT_THAT(plan.buckets[0].tensors, ElementsAre(0, 1));
  EXPECT_THAT(plan.buckets[1].tensors, ElementsAre(2, 3));
  EXPECT_THAT(plan.buckets[2].tensors, ElementsAre(4));
  EXPECT_EQ(plan.arena_bytes, 5 * 448);
}

TEST(BucketsTest, ALargeTensorHasItsOwn) {
  const BucketPlan plan = PlanBuckets(
      std::vector<PlanTensor>{{1, DType::kInt8}, {5000, DType::kInt8}, {1, DType::kInt8}}, 1000);
  ASSERT_EQ(plan.buckets.size(), 3u);
  EXPECT_THAT(plan.buckets[1].tensors, ElementsAre(1));
}

TEST(BucketsTest, TypesDoNotMix) {
  const BucketPlan plan = PlanBuckets(
      std::vector<PlanTensor>{{8, DType::kFloat32}, {8, DType::kFloat64}, {8, DType::kFloat32}},
      1 << 20);
  ASSERT_EQ(plan.buckets.size(), 2u);
  EXPECT_THAT(plan.buckets[0].tensors, ElementsAre(0, 2));
  EXPECT_THAT(plan.buckets[1].tensors, ElementsAre(1));
  EXPECT_THAT(PlanBuckets({}, 1000).buckets, IsEmpty());
}

// Whatever comes: every tensor has a place of its own, aligned, inside its bucket and the arena.
TEST(BucketsTest, PlacesNeverOverlap) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<PlanTensor> tensors(random() % 60);
    for (PlanTensor& tensor : tensors) {
      tensor = {static_cast<int64_t>(random() % (round % 2 == 0 ? 10 : 3000)),
                static_cast<DType>(random() % kNumDTypes)};
    }
    const BucketPlan plan = PlanBuckets(tensors, 64 + static_cast<int64_t>(random() % 8192));
    std::vector<bool> taken(static_cast<size_t>(plan.arena_bytes));
    for (size_t t = 0; t < tensors.size(); ++t) {
      const Placement& place = plan.placements[t];
      const Bucket& bucket = plan.buckets[static_cast<size_t>(place.bucket)];
      const auto element = static_cast<int64_t>(DTypeSize(tensors[t].dtype));
      ASSERT_EQ(bucket.dtype, tensors[t].dtype);
      ASSERT_EQ(place.offset_bytes % kSlotAlignment, 0);
      ASSERT_GE(place.offset_bytes, bucket.offset_bytes);
      ASSERT_LE(place.offset_bytes + tensors[t].count * element,
                bucket.offset_bytes + bucket.count * element);
      ASSERT_LE(bucket.offset_bytes + bucket.count * element, plan.arena_bytes);
      for (int64_t i = 0; i < tensors[t].count * element; ++i) {
        const auto at = static_cast<size_t>(place.offset_bytes + i);
        ASSERT_FALSE(taken[at]);
        taken[at] = true;
      }
    }
  }
}

}  // namespace
}  // namespace ronde
