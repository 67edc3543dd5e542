#include "tuning/bench/block_plan.h"

#include <algorithm>

namespace ronde::bench {

BlockPlan PlanBlock(double call_ns, double block_ns) {
  constexpr double kSampleNs = 10'000;
  constexpr double kWarmupShare = 0.1;
  constexpr double kMaxSamples = 200;
  constexpr double kMaxInner = 500;
  const double call = std::max(call_ns, 1.0);
  BlockPlan plan;
  plan.inner = static_cast<int64_t>(std::clamp(kSampleNs / call, 1.0, kMaxInner));
  const double sample = call * static_cast<double>(plan.inner);
  plan.samples = static_cast<int64_t>(std::clamp(block_ns / sample, 1.0, kMaxSamples));
  plan.warmup = static_cast<int64_t>(
      std::clamp(kWarmupShare * block_ns / call, 1.0, kMaxInner * kMaxSamples * kWarmupShare));
  return plan;
}

}  // namespace ronde::bench
