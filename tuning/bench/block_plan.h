// How often a candidate runs within one block.
#pragma once

#include <cstdint>

namespace ronde::bench {

// One block of one candidate: `warmup` calls that are not timed, then `samples` samples of `inner`
// calls each; a sample's time is divided by `inner`.
struct BlockPlan {
  int64_t warmup = 1;
  int64_t samples = 1;
  int64_t inner = 1;
};

// A plan for a call that takes about `call_ns`: samples long enough that reading the clock (some
// 25 ns) does not matter, a block of about `block_ns`, within reason.
BlockPlan PlanBlock(double call_ns, double block_ns);

}  // namespace ronde::bench
