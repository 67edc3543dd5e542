// How the cores that this process may use are dealt out to the ranks of a host.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/cores.h"
#include "ronde/status.h"

namespace ronde::launch {

// What `--bind` asks for. kCore: each rank gets an equal share of the usable cores of its own;
// kNuma: the cores of one NUMA node, which ranks may share.
enum class Bind : uint8_t { kNone, kCore, kNuma };

// "none", "core" or "numa"; InvalidArgument otherwise.
Result<Bind> ParseBind(std::string_view text);

// The cores of each rank, in rank order; all empty for kNone. InvalidArgument when the request
// cannot be met, saying what can.
Result<std::vector<std::vector<int>>> PlanBinding(Bind bind, int ranks, const Topology& topology);

}  // namespace ronde::launch
