// The bucket planner: which tensors of a set travel together. A pure function, so that every rank
// computes the same plan.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ronde/dtype.h"

namespace ronde {

struct PlanTensor {
  int64_t count = 0;
  DType dtype = DType::kFloat32;
};

// Where a tensor lies in every rank's slot.
struct Placement {
  int bucket = 0;
  int64_t offset_bytes = 0;  // from the start of the arena; a multiple of kSlotAlignment
};

struct Bucket {
  DType dtype = DType::kFloat32;
  int64_t offset_bytes = 0;
  int64_t count = 0;  // elements, padding between tensors included
  std::vector<int> tensors;
};

struct BucketPlan {
  std::vector<Placement> placements;  // per tensor
  std::vector<Bucket> buckets;
  int64_t arena_bytes = 0;
};

inline constexpr int64_t kSlotAlignment = 64;

// Fills buckets in the tensors' order up to bucket_bytes; a tensor larger than that has a bucket of
// its own; each dtype fills buckets of its own.
BucketPlan PlanBuckets(std::span<const PlanTensor> tensors, int64_t bucket_bytes);

}  // namespace ronde
