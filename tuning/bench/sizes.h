// Sizes as people type and read them, and the sweep over them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ronde/status.h"

namespace ronde::bench {

// "64", "4K", "1.5M", "2G", also "4KB" and "4KiB": bytes, the suffix always binary (as in
// nccl-tests). InvalidArgument names the text and what is allowed.
Result<int64_t> ParseSize(std::string_view text);

// The shortest exact text: "64", "4K", "1M"; 1536 is "1536".
std::string FormatSize(int64_t bytes);

// min, min * factor, ... up to max. InvalidArgument when min < 1, max < min, or factor <= 1 (factor
// is not looked at where min == max).
Result<std::vector<int64_t>> SweepSizes(int64_t min_bytes, int64_t max_bytes, double factor);

}  // namespace ronde::bench
