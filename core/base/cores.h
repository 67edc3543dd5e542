// Which cores the operating system lets this process use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ronde/status.h"

namespace ronde {

// What the operating system lets this process use.
struct Topology {
  std::vector<int> cpus;  // by affinity; hardware threads of one core are neighbours
  // The same cores by NUMA node; nodes without any are left out.
  std::vector<std::vector<int>> nodes;
  double quota = 0;  // cores' worth of time granted by cgroups; 0: no limit
};

// Reads affinity, topology and cgroup quota (v1 and v2). Never fails: what cannot be read counts as
// no limit, and one node holds all cores.
Topology ReadTopology();

// The parts of it that a rank reads at its start, which reads few files: the calling thread's
// affinity (ascending) and the quota.
std::vector<int> ReadAffinity();
double ReadCpuQuota();

// Cores that can compute at the same time: the affinity mask, cut by the quota. At least 1.
int UsableCores(const Topology& topology);

// "0-3,8" as the kernel writes it. InvalidArgument when it is not such a list.
Result<std::vector<int>> ParseCpuList(std::string_view text);

// The tightest cgroup limit on the way from this process's group to the root, in cores; 0: none.
// `proc_cgroup` is the text of /proc/self/cgroup, `mount` where cgroups are mounted
// (/sys/fs/cgroup).
double ReadCpuQuota(std::string_view proc_cgroup, const std::string& mount);

}  // namespace ronde
