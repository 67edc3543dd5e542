// ronde-bench-faults: how soon the other ranks know when one of them is killed.
// See docs/benchmarks.md.

#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "core/base/clock.h"
#include "tuning/bench/faults/trial.h"
#include "tuning/bench/sizes.h"
#include "tuning/bench/statistics.h"
#include "tuning/bench/system.h"

namespace ronde::bench {
namespace {

struct Options {
  int ranks = 3;
  int trials = 24;
  int resident_trials = 4;
  std::string resident = "4G";
  unsigned seed = 1;
  std::string json;
};

struct Scenario {
  const char* name;
  Burden burden;
  int trials;
};

// Runs the trials of one scenario; times of all survivors in ms, and what went wrong.
Status RunScenario(const Scenario& scenario, const Options& options, int64_t resident_bytes,
                   std::mt19937* random, std::vector<double>* times_ms,
                   std::vector<std::string>* failures) {
  std::uniform_int_distribution<int> victims(0, options.ranks - 1);
  std::uniform_int_distribution<int64_t> delays_us(0, 30'000);
  for (int i = 0; i < scenario.trials; ++i) {
    TrialOptions trial;
    trial.ranks = options.ranks;
    trial.victim = victims(*random);
    trial.burden = scenario.burden;
    trial.load = static_cast<Load>(i % kNumLoads);
    trial.resident_bytes = resident_bytes;
    trial.delay_us = delays_us(*random);
    const Result<std::vector<Witness>> witnesses = RunTrial(trial);
    if (!witnesses.ok()) return witnesses.status();
    for (const Witness& witness : *witnesses) {
      times_ms->push_back(static_cast<double>(witness.after_ns) / kNsPerMs);
      if (witness.verdict.empty()) continue;
      failures->push_back(fmt::format("{}, load {}, rank {} killed: rank {} {}", scenario.name,
                                      LoadName(trial.load), trial.victim, witness.rank,
                                      witness.verdict));
    }
  }
  return Status::Ok();
}

Status RunAll(const Options& options, bool* all_right) {
  const Result<int64_t> resident = ParseSize(options.resident);
  if (!resident.ok()) return resident.status();
  const bool fits = *resident < AvailableMemoryBytes() / 10 * 8;
  const Scenario scenarios[] = {
      {"plain", Burden::kNone, options.trials},
      {"forked child", Burden::kForkedChild, options.trials},
      {"resident", Burden::kResident, fits ? options.resident_trials : 0},
  };
  fmt::print("# ronde-bench-faults {}: {} ranks, one killed by SIGKILL at a random moment\n",
             RONDE_VERSION, options.ranks);
  fmt::print("# ms from the kill until another rank's pending work returned PeerLost\n");
  fmt::print("#     scenario  trials    median     p95   worst  failures\n");
  std::mt19937 random(options.seed);
  nlohmann::json rows = nlohmann::json::array();
  for (const Scenario& scenario : scenarios) {
    if (scenario.trials == 0) {
      fmt::print("# {}: left out ({} of memory are not to be had)\n", scenario.name,
                 options.resident);
      continue;
    }
    std::vector<double> times_ms;
    std::vector<std::string> failures;
    RONDE_RETURN_IF_ERROR(RunScenario(scenario, options, *resident, &random, &times_ms, &failures));
    const Summary summary = Summarize(times_ms);
    fmt::print("{:>14}  {:>6}  {:>8.2f}  {:>6.1f}  {:>6.1f}  {:>8}\n", scenario.name,
               scenario.trials, summary.median, summary.p95, summary.max, failures.size());
    for (const std::string& failure : failures) fmt::print("#   {}\n", failure);
    std::fflush(stdout);
    *all_right = *all_right && failures.empty();
    rows.push_back({{"scenario", scenario.name},
                    {"ranks", options.ranks},
                    {"trials", scenario.trials},
                    {"median_ms", summary.median},
                    {"p95_ms", summary.p95},
                    {"worst_ms", summary.max},
                    {"failures", failures.size()}});
  }
  if (options.json.empty()) return Status::Ok();
  const nlohmann::json document = {{"rows", rows}};
  return WriteTextFile(options.json, document.dump(1) + "\n");
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Kills ranks and measures how soon the others return PeerLost.");
  app.add_option("--ranks", options.ranks, "ranks of each job")
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  app.add_option("--trials", options.trials, "trials per scenario")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("--resident-trials", options.resident_trials, "trials with a large rank")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  app.add_option("--resident", options.resident, "memory of a large rank")->capture_default_str();
  app.add_option("--seed", options.seed, "of victims and moments")->capture_default_str();
  app.add_option("--json", options.json, "write the rows to this file");
  CLI11_PARSE(app, argc, argv);
  bool all_right = true;
  const Status status = RunAll(options, &all_right);
  if (!status.ok()) fmt::print(stderr, "ronde-bench-faults: {}\n", status.ToString());
  return status.ok() && all_right ? 0 : 1;
}

}  // namespace
}  // namespace ronde::bench

int main(int argc, char** argv) {
  return ronde::bench::Main(argc, argv);
}
