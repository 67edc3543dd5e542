// `ronde doctor`: what this build is, what the machine offers, what is configured.
#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bindings/cli/commands.h"
#include "core/launch/affinity.h"
#include "ronde/config.h"

namespace ronde::cli {
namespace {

void PrintBuild() {
  const std::string sanitizers = RONDE_SANITIZERS;
  fmt::print("build\n");
  fmt::print("  version     {}\n", RONDE_VERSION);
  fmt::print("  compiler    {}\n", RONDE_COMPILER);
  fmt::print("  build type  {}{}\n", RONDE_BUILD_TYPE,
             sanitizers.empty() ? "" : fmt::format(", sanitizers {}", sanitizers));
}

void PrintMachine() {
  const launch::Topology topology = launch::ReadTopology();
  utsname system = {};
  uname(&system);
  fmt::print("machine\n");
  fmt::print("  system      {} {} {}\n", system.sysname, system.release, system.machine);
  fmt::print("  cores       {} usable: {}\n", launch::UsableCores(topology),
             fmt::join(topology.cpus, " "));
  fmt::print("  cpu quota   {}\n",
             topology.quota > 0 ? fmt::format("{} cores (cgroup)", topology.quota) : "none");
  fmt::print("  NUMA nodes  {}\n", topology.nodes.size());
}

void PrintBackends(const std::vector<BackendReport>& backends) {
  fmt::print("backends\n");
  if (backends.empty()) fmt::print("  none in this build\n");
  for (const BackendReport& backend : backends) {
    fmt::print("  {:<11} {}{}{}\n", backend.name, backend.loads ? "loads" : "does not load",
               backend.detail.empty() ? "" : ": ", backend.detail);
  }
}

// False when the environment is not acceptable.
bool PrintConfig() {
  const Result<Config> config = Config::FromEnvironment();
  if (!config.ok()) {
    fmt::print("configuration\n  not usable: {}\n", config.status().message());
    return false;
  }
  const std::vector<ConfigEntry> entries = DescribeConfig(*config);
  size_t width = 0;
  for (const ConfigEntry& entry : entries) width = std::max(width, entry.name.size());
  fmt::print("configuration (* differs from the default)\n");
  for (const ConfigEntry& entry : entries) {
    const bool differs = entry.value != entry.default_value;
    const std::string value = entry.value.empty() ? "(empty)" : entry.value;
    fmt::print("{} {:<{}}  {}{}\n", differs ? "*" : " ", entry.name, width, value,
               differs ? fmt::format("  (default: {})",
                                     entry.default_value.empty() ? "empty" : entry.default_value)
                       : "");
  }
  return true;
}

}  // namespace

void AddDoctorCommand(CLI::App* app, BackendLister list_backends, int* exit_status) {
  CLI::App* doctor = app->add_subcommand(
      "doctor", "Report the build, the machine, the backends and the effective configuration");
  doctor->footer("Exit status: 0, or 1 when the configuration is not usable.");
  doctor->callback([list_backends = std::move(list_backends), exit_status] {
    PrintBuild();
    PrintMachine();
    PrintBackends(list_backends());
    *exit_status = PrintConfig() ? 0 : 1;
  });
}

}  // namespace ronde::cli
