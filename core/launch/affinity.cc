#include "core/launch/affinity.h"

#include <fmt/format.h>

namespace ronde::launch {

Result<Bind> ParseBind(std::string_view text) {
  if (text == "none") return Bind::kNone;
  if (text == "core") return Bind::kCore;
  if (text == "numa") return Bind::kNuma;
  return Status::InvalidArgument(
      fmt::format("--bind '{}' is not allowed: must be none, core or numa", text));
}

Result<std::vector<std::vector<int>>> PlanBinding(Bind bind, int ranks, const Topology& topology) {
  std::vector<std::vector<int>> plan(static_cast<size_t>(ranks));
  const size_t n = plan.size();
  switch (bind) {
    case Bind::kNone:
      break;
    case Bind::kCore: {
      const std::vector<int>& cpus = topology.cpus;
      if (n > cpus.size()) {
        return Status::InvalidArgument(fmt::format(
            "--bind core needs a core for each of {} ranks, but {} usable: use -n {} or less, "
            "--bind numa, or --bind none",
            n, cpus.size() == 1 ? "only 1 is" : fmt::format("only {} are", cpus.size()),
            cpus.size()));
      }
      for (size_t r = 0; r < n; ++r) {
        plan[r].assign(cpus.begin() + static_cast<ptrdiff_t>(r * cpus.size() / n),
                       cpus.begin() + static_cast<ptrdiff_t>((r + 1) * cpus.size() / n));
      }
      break;
    }
    case Bind::kNuma:
      // Neighbouring ranks share a node: they talk to each other most.
      for (size_t r = 0; r < n; ++r) plan[r] = topology.nodes[r * topology.nodes.size() / n];
      break;
  }
  return plan;
}

}  // namespace ronde::launch
