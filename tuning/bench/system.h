// Small facts of the system that benchmarks need.
#pragma once

#include <cstdint>
#include <string>

#include "ronde/status.h"

namespace ronde::bench {

// Size of the last-level cache, 32 MiB where the system does not say.
int64_t LastLevelCacheBytes();

// Memory that could be allocated now without swapping; INT64_MAX where the system does not say.
int64_t AvailableMemoryBytes();

// Replaces `path`. Internal, with the reason, when that fails.
Status WriteTextFile(const std::string& path, const std::string& text);

}  // namespace ronde::bench
