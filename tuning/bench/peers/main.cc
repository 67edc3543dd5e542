// ronde-bench-peers: Ronde beside Open MPI and Gloo on this machine, interleaved.
// See docs/benchmarks.md for how it measures and how to read it.

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tuning/bench/peers/field.h"
#include "tuning/bench/peers/report.h"
#include "tuning/bench/peers/sweep.h"
#include "tuning/bench/sizes.h"
#include "tuning/bench/system.h"

namespace ronde::bench {
namespace {

std::atomic<bool> g_interrupted{false};  // set by the signal handler, read everywhere below

struct Options {
  int ranks = 2;
  std::string min_bytes = "8";
  std::string max_bytes = "256M";
  double factor = 4;
  int rounds = 5;
  std::string json;
  bool placement = false;
};

// Sizes of the sweep, and those of the project's table of targets, within the bounds.
Result<std::vector<int64_t>> Sizes(const Options& options) {
  constexpr int64_t kElement = 4;
  constexpr int64_t kK = 1 << 10;
  constexpr int64_t kM = 1 << 20;
  const Result<int64_t> low = ParseSize(options.min_bytes);
  if (!low.ok()) return low.status();
  const Result<int64_t> high = ParseSize(options.max_bytes);
  if (!high.ok()) return high.status();
  Result<std::vector<int64_t>> sizes = SweepSizes(std::max(*low, kElement), *high, options.factor);
  if (!sizes.ok()) return sizes;
  for (const int64_t size : {int64_t{8}, int64_t{64}, kK, 4 * kK, 16 * kK, 32 * kK, 64 * kK,
                             256 * kK, kM, 4 * kM, 16 * kM, 64 * kM, 256 * kM}) {
    if (size >= *low && size <= *high) sizes->push_back(size);
  }
  for (int64_t& size : *sizes) size = size / kElement * kElement;
  std::sort(sizes->begin(), sizes->end());
  sizes->erase(std::unique(sizes->begin(), sizes->end()), sizes->end());
  return sizes;
}

// Measures and prints every size; rows of those done are in `*rows` even when it fails.
Status MeasureSizes(const std::vector<int64_t>& sizes, const Field& field, int rounds,
                    std::vector<PeersRow>* rows) {
  Sweep sweep(field.Candidates(), rounds);
  fmt::print("{}", PeersHeader());
  bool seen[kNumPlacements] = {};
  for (const int64_t bytes : sizes) {
    std::fflush(stdout);
    const int64_t needed = field.Footprint(bytes);
    const int64_t available = AvailableMemoryBytes();
    if (needed > available / 10 * 9) {
      fmt::print("# {}: left out, needs {} MiB of memory and {} are available\n", FormatSize(bytes),
                 needed >> 20, available >> 20);
      continue;
    }
    const Result<std::vector<PeersRow>> measured = sweep.Measure(bytes);
    if (!measured.ok()) return measured.status();
    for (const PeersRow& row : *measured) {
      fmt::print("{}", PeersLine(row));
      seen[static_cast<size_t>(row.placement)] = true;
      rows->push_back(row);
    }
    if (measured->empty()) {
      fmt::print("# {}: the cores' placement did not keep still (last ping-pong {:.0f} ns)\n",
                 FormatSize(bytes), sweep.last_ping_pong_ns());
    }
  }
  for (int p = 0; p < kNumPlacements; ++p) {
    if (!seen[p]) fmt::print("# class {}: not seen\n", PlacementName(static_cast<Placement>(p)));
  }
  fmt::print("# rounds dropped because the placement changed: {}\n", sweep.dropped());
  return Status::Ok();
}

Status RunAll(const Options& options) {
  const Result<std::vector<int64_t>> sizes = Sizes(options);
  if (!sizes.ok()) return sizes.status();
  const Result<ScratchDirectory> scratch = ScratchDirectory::Make();
  if (!scratch.ok()) return scratch.status();
  Field field(options.ranks, *scratch, &g_interrupted);
  RONDE_RETURN_IF_ERROR(field.Start(sizes->back()));
  fmt::print("# ronde-bench-peers {}: allreduce, float32, sum, {} ranks on {} cores, not bound\n{}",
             RONDE_VERSION, options.ranks, UsableCpus().size(), field.Describe());
  fmt::print("# medians of {} rounds; of limit: share of the speed that memory allows\n",
             options.rounds);
  std::vector<PeersRow> rows;
  RONDE_RETURN_IF_ERROR(MeasureSizes(*sizes, field, options.rounds, &rows));
  if (options.json.empty()) return Status::Ok();
  return WriteTextFile(options.json, PeersJson(rows).dump(1) + "\n");
}

int PrintPlacement() {
  const std::vector<int> cpus = UsableCpus();
  const CorePair cores = PickCores(cpus, cpus);
  const double one_way_ns = PingPongNs(cores.a, cores.b);
  const std::optional<Placement> placement = ClassifyPingPong(one_way_ns);
  fmt::print("{} {:.0f}\n", placement ? PlacementName(*placement) : "unclear", one_way_ns);
  return 0;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures allreduce of Ronde, Open MPI and Gloo side by side.");
  app.add_option("--ranks", options.ranks, "ranks of each candidate")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--min-bytes", options.min_bytes, "smallest size")->capture_default_str();
  app.add_option("--max-bytes", options.max_bytes, "largest size")->capture_default_str();
  app.add_option("--factor", options.factor, "step between sizes")->capture_default_str();
  app.add_option("--rounds", options.rounds, "rounds per size")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--json", options.json, "write the rows to this file");
  app.add_flag("--placement", options.placement,
               "only print the class of this machine's cores now, and the one-way time in ns");
  CLI11_PARSE(app, argc, argv);
  if (options.placement) return PrintPlacement();

  struct sigaction action = {};
  action.sa_handler = [](int) { g_interrupted = true; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  const Status status = RunAll(options);
  if (status.ok()) return 0;
  if (g_interrupted) {
    fmt::print(stderr, "ronde-bench-peers: interrupted\n");
    return 130;
  }
  fmt::print(stderr, "ronde-bench-peers: {}\n", status.ToString());
  return 1;
}

}  // namespace
}  // namespace ronde::bench

int main(int argc, char** argv) {
  return ronde::bench::Main(argc, argv);
}
