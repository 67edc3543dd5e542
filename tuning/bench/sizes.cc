#include "tuning/bench/sizes.h"

#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace ronde::bench {
namespace {

constexpr double kMaxBytes = 1e15;  // far above any machine's memory, far below int64's end

// 0 when `suffix` is none of ours.
double SuffixFactor(std::string_view suffix) {
  if (!suffix.empty() && (suffix.back() == 'B' || suffix.back() == 'b')) suffix.remove_suffix(1);
  if (suffix.size() == 2 && suffix.back() == 'i') suffix.remove_suffix(1);
  if (suffix.empty()) return 1;
  if (suffix == "K" || suffix == "k") return 1024.0;
  if (suffix == "M" || suffix == "m") return 1048576.0;
  if (suffix == "G" || suffix == "g") return 1073741824.0;
  return 0;
}

}  // namespace

Result<int64_t> ParseSize(std::string_view text) {
  double number = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  const double bytes =
      error == std::errc() ? number * SuffixFactor({end, static_cast<size_t>(last - end)}) : 0;
  if (!(bytes >= 1) || bytes > kMaxBytes) {
    return Status::InvalidArgument(fmt::format(
        "size '{}' must be a number of bytes of at least 1, such as 64, 4K, 1.5M or 2G", text));
  }
  return static_cast<int64_t>(bytes);
}

std::string FormatSize(int64_t bytes) {
  for (const auto& [unit, suffix] : {std::pair<int64_t, const char*>{int64_t{1} << 30, "G"},
                                     {int64_t{1} << 20, "M"},
                                     {int64_t{1} << 10, "K"}}) {
    if (bytes != 0 && bytes % unit == 0) return fmt::format("{}{}", bytes / unit, suffix);
  }
  return fmt::format("{}", bytes);
}

Result<std::vector<int64_t>> SweepSizes(int64_t min_bytes, int64_t max_bytes, double factor) {
  if (min_bytes < 1 || max_bytes < min_bytes) {
    return Status::InvalidArgument(fmt::format(
        "sizes from {} to {} bytes: the least must be at least 1 and at most the greatest",
        min_bytes, max_bytes));
  }
  if (min_bytes != max_bytes && !(factor > 1)) {
    return Status::InvalidArgument(fmt::format("factor {} must be greater than 1", factor));
  }
  std::vector<int64_t> sizes;
  double exact = static_cast<double>(min_bytes);
  for (int64_t size = min_bytes; size <= max_bytes; size = std::llround(exact)) {
    if (sizes.empty() || size > sizes.back()) sizes.push_back(size);
    if (min_bytes == max_bytes) break;
    exact *= factor;
  }
  return sizes;
}

}  // namespace ronde::bench
