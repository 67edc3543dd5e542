#include "tuning/bench/row.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tuning/bench/formulas.h"

namespace ronde::bench {
namespace {

constexpr const char* kFormat =
    "{:>12}  {:>12}  {:>8}  {:>6}  {:>6}  {:>8}  {:>6}  {:>6}  {:>6}  {:>8}  {:>5}  {:>8}  {:>8}  "
    "{:>8}  {:>8}\n";

bool Reduces(OpKind kind) {
  return kind == OpKind::kAllreduce || kind == OpKind::kReducescatter;
}

// Fewer decimals as the number grows, so that the width stays.
std::string Number(double value, int decimals) {
  if (value >= 1000) decimals = 0;
  return fmt::format("{:.{}f}", value, value >= 100 ? std::min(decimals, 1) : decimals);
}

}  // namespace

std::string TableHeader() {
  const auto line = [](auto&&... cells) { return fmt::format(fmt::runtime(kFormat), cells...); };
  return line("#       size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong",
              "buffers", "class", "min", "p95", "max", "limit") +
         line("#        (B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "", "",
              "(us)", "(us)", "(us)", "(us)");
}

std::string TableLine(const Row& row) {
  const double algbw = AlgBandwidth(row.bytes, row.time_us.median);
  const double busbw = algbw * BusFactor(row.kind, row.ranks);
  return fmt::format(
      fmt::runtime(kFormat), row.bytes, row.count, DTypeName(row.dtype),
      Reduces(row.kind) ? ReduceOpName(row.op) : "none", row.kind == OpKind::kBroadcast ? 0 : -1,
      Number(row.time_us.median, 2), Number(algbw, 2), Number(busbw, 2),
      row.wrong ? fmt::format("{}", *row.wrong) : "N/A", BuffersName(row.buffers),
      PlacementName(row.placement), Number(row.time_us.min, 2), Number(row.time_us.p95, 2),
      Number(row.time_us.max, 2), Number(row.limit_us, 2));
}

nlohmann::json RowJson(const Row& row) {
  const double algbw = AlgBandwidth(row.bytes, row.time_us.median);
  return {
      {"collective", OpKindName(row.kind)},
      {"dtype", DTypeName(row.dtype)},
      {"op", Reduces(row.kind) ? ReduceOpName(row.op) : "none"},
      {"bytes", row.bytes},
      {"count", row.count},
      {"ranks", row.ranks},
      {"buffers", BuffersName(row.buffers)},
      {"class", PlacementName(row.placement)},
      {"backend", row.backend},
      {"schedule", row.schedule},
      {"time_us",
       {{"min", row.time_us.min},
        {"median", row.time_us.median},
        {"p95", row.time_us.p95},
        {"max", row.time_us.max}}},
      {"algbw_gbs", algbw},
      {"busbw_gbs", algbw * BusFactor(row.kind, row.ranks)},
      {"wrong", row.wrong ? nlohmann::json(*row.wrong) : nlohmann::json()},
      {"limit_us", row.limit_us},
  };
}

}  // namespace ronde::bench
