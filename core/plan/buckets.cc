#include "core/plan/buckets.h"

#include <array>

namespace ronde {

BucketPlan PlanBuckets(std::span<const PlanTensor> tensors, int64_t bucket_bytes) {
  BucketPlan plan;
  plan.placements.resize(tensors.size());
  std::vector<int64_t> sizes;  // of each bucket
  std::array<int, kNumDTypes> open;
  open.fill(-1);
  for (size_t t = 0; t < tensors.size(); ++t) {
    const int64_t bytes = tensors[t].count * static_cast<int64_t>(DTypeSize(tensors[t].dtype));
    const int64_t padded = (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
    int& bucket = open[static_cast<size_t>(tensors[t].dtype)];
    if (bucket < 0 || sizes[static_cast<size_t>(bucket)] + padded > bucket_bytes) {
      bucket = static_cast<int>(plan.buckets.size());
      plan.buckets.push_back({});
      plan.buckets.back().dtype = tensors[t].dtype;
      sizes.push_back(0);
    }
    const auto b = static_cast<size_t>(bucket);
    plan.placements[t] = {bucket, sizes[b]};
    plan.buckets[b].tensors.push_back(static_cast<int>(t));
    sizes[b] += padded;
  }
  for (size_t b = 0; b < plan.buckets.size(); ++b) {
    Bucket& bucket = plan.buckets[b];
    bucket.offset_bytes = plan.arena_bytes;
    bucket.count = sizes[b] / static_cast<int64_t>(DTypeSize(bucket.dtype));
    plan.arena_bytes += sizes[b];
  }
  for (Placement& placement : plan.placements) {
    placement.offset_bytes += plan.buckets[static_cast<size_t>(placement.bucket)].offset_bytes;
  }
  return plan;
}

}  // namespace ronde
