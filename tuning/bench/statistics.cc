#include "tuning/bench/statistics.h"

#include <algorithm>
#include <cmath>

#include "core/base/log.h"

namespace ronde::bench {

Summary Summarize(std::vector<double> values) {
  Summary summary;
  if (values.empty()) return summary;
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  summary.min = values.front();
  summary.median = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  // 1e-9: 0.95 * 20 is 19.000000000000004 in some roundings, and would name the 20th value.
  const auto rank = static_cast<size_t>(std::ceil(0.95 * static_cast<double>(n) - 1e-9));
  summary.p95 = values[std::max<size_t>(rank, 1) - 1];
  summary.max = values.back();
  return summary;
}

std::vector<double> GroupTimes(std::span<const std::vector<int64_t>> stamps) {
  std::vector<double> times;
  if (stamps.empty()) return times;
  int64_t previous = 0;
  for (size_t i = 0; i < stamps[0].size(); ++i) {
    int64_t last = stamps[0][i];
    for (const std::vector<int64_t>& rank : stamps) {
      RONDE_CHECK(rank.size() == stamps[0].size());
      last = std::max(last, rank[i]);
    }
    if (i > 0) times.push_back(static_cast<double>(last - previous));
    previous = last;
  }
  return times;
}

}  // namespace ronde::bench
