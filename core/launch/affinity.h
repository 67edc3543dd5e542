// Which cores this process may use, and how they are dealt out to the ranks of a host.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ronde/status.h"

namespace ronde::launch {

// What `--bind` asks for. kCore: each rank gets an equal share of the usable cores of its own;
// kNuma: the cores of one NUMA node, which ranks may share.
enum class Bind : uint8_t { kNone, kCore, kNuma };

// "none", "core" or "numa"; InvalidArgument otherwise.
Result<Bind> ParseBind(std::string_view text);

// What the operating system lets this process use.
struct Topology {
  std::vector<int> cpus;  // by affinity; hardware threads of one core are neighbours
  std::vector<std::vector<int>>
      nodes;         // the same cores by NUMA node; nodes without any are left out
  double quota = 0;  // cores' worth of time granted by cgroups; 0: no limit
};

// Reads affinity, topology and cgroup quota (v1 and v2). Never fails: what cannot be read counts as
// no limit, and one node holds all cores.
Topology ReadTopology();

// Cores that can compute at the same time: the affinity mask, cut by the quota. At least 1.
int UsableCores(const Topology& topology);

// The cores of each rank, in rank order; all empty for kNone. InvalidArgument when the request
// cannot be met, saying what can.
Result<std::vector<std::vector<int>>> PlanBinding(Bind bind, int ranks, const Topology& topology);

// "0-3,8" as the kernel writes it. InvalidArgument when it is not such a list.
Result<std::vector<int>> ParseCpuList(std::string_view text);

// The tightest cgroup limit on the way from this process's group to the root, in cores; 0: none.
// `proc_cgroup` is the text of /proc/self/cgroup, `mount` where cgroups are mounted
// (/sys/fs/cgroup).
double ReadCpuQuota(std::string_view proc_cgroup, const std::string& mount);

}  // namespace ronde::launch
