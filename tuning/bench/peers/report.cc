#include "tuning/bench/peers/report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tuning/bench/sizes.h"

namespace ronde::bench {
namespace {

// At most ten characters, three or more significant digits.
std::string TimeText(std::optional<double> us) {
  if (!us) return "-";
  return fmt::format("{:.{}f}", *us, *us < 10 ? 2 : *us < 1000 ? 1 : 0);
}

std::string RatioText(std::optional<double> numerator, std::optional<double> denominator) {
  if (!numerator || !denominator || *denominator <= 0) return "-";
  const double ratio = *numerator / *denominator;
  return fmt::format("{:.{}f}x", ratio, ratio < 100 ? 2 : 0);
}

std::string ShareText(std::optional<double> limit, std::optional<double> time) {
  if (!limit || !time || *time <= 0) return "-";
  return fmt::format("{:.0f}%", 100 * *limit / *time);
}

constexpr const char* kFormat =
    "{:>8} {:>5}  {:>10} {:>10} {:>10} {:>10}  {:>10} {:>10}  {:>8} {:>8} {:>9}  {:>7} {:>7}\n";

}  // namespace

std::string PeersHeader() {
  return fmt::format(fmt::runtime(kFormat), "#       ", "", "Ronde", "Ronde", "Open MPI", "Gloo",
                     "limit", "limit", "MPI /", "MPI /", "Gloo /", "of", "limit") +
         fmt::format(fmt::runtime(kFormat), "#   size", "class", "private", "arena", "", "",
                     "private", "arena", "private", "arena", "private", "private", "arena") +
         fmt::format(fmt::runtime(kFormat), "#    (B)", "", "(us)", "(us)", "(us)", "(us)", "(us)",
                     "(us)", "", "", "", "", "");
}

std::string PeersLine(const PeersRow& row) {
  const auto mine = row.at(Column::kRondePrivate);
  const auto arena = row.at(Column::kRondeArena);
  const auto mpi = row.at(Column::kOpenMpi);
  const auto gloo = row.at(Column::kGloo);
  const auto limit_private = row.at(Column::kLimitPrivate);
  const auto limit_arena = row.at(Column::kLimitArena);
  return fmt::format(fmt::runtime(kFormat), FormatSize(row.bytes), PlacementName(row.placement),
                     TimeText(mine), TimeText(arena), TimeText(mpi), TimeText(gloo),
                     TimeText(limit_private), TimeText(limit_arena), RatioText(mpi, mine),
                     RatioText(mpi, arena), RatioText(gloo, mine), ShareText(limit_private, mine),
                     ShareText(limit_arena, arena));
}

nlohmann::json PeersJson(const std::vector<PeersRow>& rows) {
  nlohmann::json list = nlohmann::json::array();
  for (const PeersRow& row : rows) {
    nlohmann::json entry = {{"bytes", row.bytes}, {"class", PlacementName(row.placement)}};
    for (int c = 0; c < kNumColumns; ++c) {
      const auto column = static_cast<Column>(c);
      const std::optional<double> us = row.at(column);
      entry[std::string(ColumnKey(column))] = us ? nlohmann::json(*us) : nlohmann::json();
    }
    list.push_back(std::move(entry));
  }
  return {{"rows", std::move(list)}};
}

}  // namespace ronde::bench
