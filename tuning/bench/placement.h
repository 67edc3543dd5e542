// Where two cores are relative to each other, told by how long a cache line takes between them.
//
// Virtual machines move cores about within minutes, and with them every figure of a collective by
// up to four times; so each block of a benchmark is stamped with its class.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace ronde::bench {

enum class Placement : unsigned char { kNear, kFar };
inline constexpr int kNumPlacements = 2;

// "near" or "far".
std::string_view PlacementName(Placement placement);

// The class of a one-way time: near below 100 ns, far above 150 ns, none between.
std::optional<Placement> ClassifyPingPong(double one_way_ns);

// The cores that this thread may run on, ascending.
std::vector<int> UsableCpus();

// One-way time of a cache line between two cores, in ns: the best of several batches of round trips
// of two threads. Blocks for about a millisecond; busy on both cores meanwhile, so nothing else
// should run there. Cores equal (a single-core machine): 0, which is near: they share every cache.
double PingPongNs(int cpu_a, int cpu_b);

// The two cores to measure: the first of one rank's and the last of another's, different where that
// is possible.
struct CorePair {
  int a = 0;
  int b = 0;
};
CorePair PickCores(const std::vector<int>& cpus_of_first, const std::vector<int>& cpus_of_last);

}  // namespace ronde::bench
