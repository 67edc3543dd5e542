// ShmBucket: in-place reduction of one bucket of a declared set. This rank adds its slice over all
// slots and writes the sum into every slot, in one pass: each byte is read once and written once,
// by one rank.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/exec/backend.h"

namespace ronde::shm {

// Owned by the set; every method needs the token.
class ShmBucket : public BackendBucket {
 public:
  ShmBucket(const BackendContext& context, SlotBucket bucket);
  void Start() override { done_ = begin_; }
  Progress Poll() override;

 private:
  const SlotBucket bucket_;
  const kernels::ReduceFn reduce_;
  int64_t begin_ = 0;  // elements of this rank's slice
  int64_t end_ = 0;
  int64_t done_ = 0;
  std::vector<const void*> srcs_;
  std::vector<void*> dsts_;
};

}  // namespace ronde::shm
