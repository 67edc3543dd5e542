// `ronde doctor`: what this build is, what the machine offers, what is configured.
#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bindings/cli/commands.h"
#include "core/base/cores.h"
#include "core/kernels/reduce.h"
#include "core/plan/rules.h"
#include "ronde/config.h"
#include "ronde/runtime.h"

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
  const Topology topology = ReadTopology();
  utsname system = {};
  uname(&system);
  fmt::print("machine\n");
  fmt::print("  system      {} {} {}\n", system.sysname, system.release, system.machine);
  fmt::print("  cores       {} usable: {}\n", UsableCores(topology), fmt::join(topology.cpus, " "));
  fmt::print("  cpu quota   {}\n",
             topology.quota > 0 ? fmt::format("{} cores (cgroup)", topology.quota) : "none");
  fmt::print("  vectors     {}\n", kernels::IsaName(kernels::DetectIsa()));
  fmt::print("  NUMA nodes  {}\n", topology.nodes.size());
}

void PrintBackends() {
  fmt::print("backends\n");
  for (const BackendReport& backend : DescribeBackends()) {
    fmt::print("  {:<11} {}{}{}\n", backend.name, backend.available ? "available" : "not available",
               backend.detail.empty() ? "" : ": ", backend.detail);
  }
}

// In the syntax of RONDE_RULES.
void PrintRules(const RuleTable& rules) {
  fmt::print("selection rules (later ones win)\n");
  const std::string text = rules.ToString();
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = rest.find('\n');
    fmt::print("  {}\n", rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
}

// False when the environment is not acceptable.
bool PrintConfig() {
  const auto refuse = [](const Status& status) {
    fmt::print("configuration\n  not usable: {}\n", status.message());
    return false;
  };
  const Result<Config> config = Config::FromEnvironment();
  if (!config.ok()) return refuse(config.status());
  const Result<kernels::Isa> isa = kernels::ParseIsa(config->kernels);
  if (!isa.ok()) return refuse(isa.status());
  const Result<RuleTable> rules = RuleTable::Make(config->rules);
  if (!rules.ok()) return refuse(rules.status());
  PrintRules(*rules);
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

void AddDoctorCommand(CLI::App* app, int* exit_status) {
  CLI::App* doctor = app->add_subcommand(
      "doctor", "Report the build, the machine, the backends and the effective configuration");
  doctor->footer("Exit status: 0, or 1 when the configuration is not usable.");
  doctor->callback([exit_status] {
    PrintBuild();
    PrintMachine();
    PrintBackends();
    *exit_status = PrintConfig() ? 0 : 1;
  });
}

}  // namespace ronde::cli
