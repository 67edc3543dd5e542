#include "core/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <tuple>

#include <fmt/format.h>

namespace ronde {
namespace {

std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

int ReadInt(const std::string& path, int fallback) {
  std::ifstream file(path);
  int value = 0;
  return file >> value ? value : fallback;
}

// So that an equal split never gives two ranks one hardware core while another core is free.
void SortByCore(std::vector<int>* cpus) {
  auto key = [](int cpu) {
    const std::string base = fmt::format("/sys/devices/system/cpu/cpu{}/topology/", cpu);
    return std::tuple(ReadInt(base + "physical_package_id", 0), ReadInt(base + "core_id", cpu),
                      cpu);
  };
  std::vector<std::tuple<int, int, int>> keys;
  for (int cpu : *cpus) keys.push_back(key(cpu));
  std::sort(keys.begin(), keys.end());
  for (size_t i = 0; i < keys.size(); ++i) (*cpus)[i] = std::get<2>(keys[i]);
}

std::vector<std::vector<int>> ReadNodes(const std::vector<int>& cpus) {
  const std::string base = "/sys/devices/system/node";
  std::vector<std::vector<int>> nodes;
  const std::string online = ReadFile(base + "/online").value_or("");
  const Result<std::vector<int>> numbers = ParseCpuList(online);
  if (!numbers.ok()) return {cpus};
  for (int number : *numbers) {
    const Result<std::vector<int>> members =
        ParseCpuList(ReadFile(fmt::format("{}/node{}/cpulist", base, number)).value_or(""));
    if (!members.ok()) continue;
    std::vector<int> usable;
    for (int cpu : cpus) {
      if (std::find(members->begin(), members->end(), cpu) != members->end()) usable.push_back(cpu);
    }
    if (!usable.empty()) nodes.push_back(usable);
  }
  return nodes.empty() ? std::vector<std::vector<int>>{cpus} : nodes;
}

void Tighten(double cores, double* limit) {
  if (cores > 0 && (*limit == 0 || cores < *limit)) *limit = cores;
}

// v2: one file, "QUOTA PERIOD" or "max PERIOD".
double ReadV2(const std::string& folder) {
  std::istringstream text(ReadFile(folder + "/cpu.max").value_or(""));
  double quota = 0;
  double period = 0;
  return text >> quota >> period && period > 0 ? quota / period : 0;
}

// v1: two files; a quota of -1 is none.
double ReadV1(const std::string& folder) {
  const int quota = ReadInt(folder + "/cpu.cfs_quota_us", -1);
  const int period = ReadInt(folder + "/cpu.cfs_period_us", 0);
  return quota > 0 && period > 0 ? static_cast<double>(quota) / period : 0;
}

// In a container the path may be the host's, which is not there: then only the mount's own root
// counts, and it is the container's group.
void TightenUpwards(const std::string& mount, std::string path,
                    double (*read)(const std::string& folder), double* limit) {
  while (true) {
    Tighten(read(mount + path), limit);
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return;
    path.resize(slash);
  }
}

bool HasController(std::string_view list, std::string_view name) {
  return fmt::format(",{},", list).find(fmt::format(",{},", name)) != std::string::npos;
}

}  // namespace

std::vector<int> ReadAffinity() {
  // Larger than one cpu_set_t (1024): the kernel refuses a mask smaller than its own.
  cpu_set_t sets[8];
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(sets), sets) != 0) return {0};
  for (int cpu = 0; cpu < static_cast<int>(8 * sizeof(sets)); ++cpu) {
    if (CPU_ISSET_S(cpu, sizeof(sets), sets)) cpus.push_back(cpu);
  }
  return cpus;
}

double ReadCpuQuota() {
  return ReadCpuQuota(ReadFile("/proc/self/cgroup").value_or(""), "/sys/fs/cgroup");
}

Topology ReadTopology() {
  Topology topology;
  topology.cpus = ReadAffinity();
  SortByCore(&topology.cpus);
  topology.nodes = ReadNodes(topology.cpus);
  topology.quota = ReadCpuQuota();
  return topology;
}

int UsableCores(const Topology& topology) {
  int cores = static_cast<int>(topology.cpus.size());
  // Rounded down: one thread too many is throttled, and stalls the whole exchange.
  if (topology.quota > 0) cores = std::min(cores, static_cast<int>(topology.quota));
  return std::max(1, cores);
}

Result<std::vector<int>> ParseCpuList(std::string_view text) {
  const Status bad = Status::InvalidArgument(fmt::format("'{}' is not a list of cores", text));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  std::vector<int> cpus;
  while (!text.empty()) {
    const char* end = text.data() + text.size();
    int first = 0;
    auto [at, error] = std::from_chars(text.data(), end, first);
    if (error != std::errc() || first < 0) return bad;
    int last = first;
    if (at != end && *at == '-') {
      std::tie(at, error) = [&] {
        const auto parsed = std::from_chars(at + 1, end, last);
        return std::tuple(parsed.ptr, parsed.ec);
      }();
      if (error != std::errc() || last < first) return bad;
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (at != end && (*at != ',' || at + 1 == end)) return bad;
    text.remove_prefix(static_cast<size_t>(at - text.data()) + (at == end ? 0 : 1));
  }
  if (cpus.empty()) return bad;
  return cpus;
}

double ReadCpuQuota(std::string_view proc_cgroup, const std::string& mount) {
  double limit = 0;
  std::istringstream lines{std::string(proc_cgroup)};
  for (std::string line; std::getline(lines, line);) {
    // "ID:CONTROLLERS:PATH"; v2 has no controllers in its line.
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (controllers.empty()) {
      TightenUpwards(mount, path, ReadV2, &limit);
    } else if (HasController(controllers, "cpu")) {
      std::error_code ignored;
      const std::string joint = mount + "/" + controllers;
      const bool joined = std::filesystem::is_directory(joint, ignored);
      TightenUpwards(joined ? joint : mount + "/cpu", path, ReadV1, &limit);
    }
  }
  return limit;
}

}  // namespace ronde
