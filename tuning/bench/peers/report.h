// What `bench peers` prints and writes.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tuning/bench/peers/sweep.h"

namespace ronde::bench {

// The table's head, and one line of it.
std::string PeersHeader();
std::string PeersLine(const PeersRow& row);

// {"rows": [...]}, a missing candidate being null. The gradient set is added by the caller.
nlohmann::json PeersJson(const std::vector<PeersRow>& rows);

}  // namespace ronde::bench
