#include "tuning/bench/formulas.h"

#include <algorithm>

namespace ronde::bench {
namespace {

constexpr int64_t kUnitBytes = 16;

}  // namespace

Sizing SizeOperation(OpKind kind, int64_t bytes, int64_t element_bytes, int ranks) {
  const int64_t n = ranks;
  Sizing sizing;
  switch (kind) {
    case OpKind::kAllreduce:
    case OpKind::kBroadcast: {
      const int64_t count = std::max<int64_t>(bytes / element_bytes, 1);
      sizing = {count * element_bytes, count, count};
      break;
    }
    case OpKind::kAllgather:
    case OpKind::kReducescatter:
    case OpKind::kAlltoall: {
      int64_t part_bytes = bytes / n;
      if (part_bytes >= kUnitBytes) part_bytes -= part_bytes % kUnitBytes;
      const int64_t part = std::max<int64_t>(part_bytes / element_bytes, 1);
      sizing = {part * n * element_bytes, part * n, part * n};
      if (kind == OpKind::kAllgather) sizing.input_count = part;
      if (kind == OpKind::kReducescatter) sizing.output_count = part;
      break;
    }
    case OpKind::kBarrier:
      break;
  }
  return sizing;
}

double AlgBandwidth(int64_t bytes, double time_us) {
  return time_us > 0 ? static_cast<double>(bytes) / time_us / 1000 : 0;
}

double BusFactor(OpKind kind, int ranks) {
  const double n = ranks;
  switch (kind) {
    case OpKind::kAllreduce:
      return 2 * (n - 1) / n;
    case OpKind::kAllgather:
    case OpKind::kReducescatter:
    case OpKind::kAlltoall:
      return (n - 1) / n;
    case OpKind::kBroadcast:
    case OpKind::kBarrier:
      return 1;
  }
  return 1;
}

}  // namespace ronde::bench
