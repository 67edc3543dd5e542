#include "tuning/bench/peers/sweep.h"

#include <algorithm>
#include <set>

#include "tuning/bench/statistics.h"

namespace ronde::bench {
namespace {

constexpr double kBlockNs = 25e6;
constexpr double kLongRoundNs = 1.5e9;
constexpr int kFewRounds = 3;  // of those that take long

CorePair TwoCores() {
  const std::vector<int> cpus = UsableCpus();
  return PickCores(cpus, cpus);
}

double Median(const std::vector<double>& times) {
  return Summarize(times).median;
}

}  // namespace

std::string_view ColumnKey(Column column) {
  switch (column) {
    case Column::kRondePrivate:
      return "ronde_private_us";
    case Column::kRondeArena:
      return "ronde_arena_us";
    case Column::kOpenMpi:
      return "openmpi_us";
    case Column::kGloo:
      return "gloo_us";
    case Column::kLimitPrivate:
      return "limit_private_us";
    case Column::kLimitArena:
      return "limit_arena_us";
  }
  return "?";
}

Sweep::Sweep(std::vector<SweepCandidate> candidates, int rounds)
    : candidates_(std::move(candidates)), rounds_(rounds), cores_(TwoCores()) {}

Result<std::vector<PeersRow>> Sweep::Measure(int64_t bytes) {
  RONDE_RETURN_IF_ERROR(PlanBlocks(bytes));
  const int wanted = round_ns_ > kLongRoundNs ? std::min(rounds_, kFewRounds) : rounds_;
  std::array<Times, kNumPlacements> times;
  int good = 0;
  for (int attempt = 0; attempt < 3 * wanted && good < wanted; ++attempt) {
    const int dropped_before = dropped_;
    RONDE_RETURN_IF_ERROR(RunRound(&times));
    if (dropped_ == dropped_before) ++good;
  }
  std::vector<PeersRow> rows;
  for (int p = 0; p < kNumPlacements; ++p) {
    PeersRow row;
    row.bytes = bytes;
    row.placement = static_cast<Placement>(p);
    bool met = false;
    for (size_t c = 0; c < kNumColumns; ++c) {
      const std::vector<double>& column = times[static_cast<size_t>(p)][c];
      if (column.empty()) continue;
      row.median_us[c] = Median(column) / 1000;
      met = true;
    }
    if (met) rows.push_back(row);
  }
  return rows;
}

Status Sweep::PlanBlocks(int64_t bytes) {
  std::set<PeerGroup*> prepared;
  plans_.clear();
  round_ns_ = 0;
  for (const SweepCandidate& candidate : candidates_) {
    if (prepared.insert(candidate.group).second) {
      RONDE_RETURN_IF_ERROR(candidate.group->Prepare(bytes));
    }
    // Touches the memory once, then measures roughly; again where one call is too short to tell.
    double call_ns = 0;
    for (BlockPlan plan : {BlockPlan{1, 2, 1}, BlockPlan{10, 3, 50}}) {
      if (plan.inner > 1 && call_ns > 1e6) break;
      const Result<std::vector<double>> rough = candidate.group->Run(candidate.buffers, plan);
      if (!rough.ok()) return rough.status();
      call_ns = Summarize(*rough).median;
    }
    plans_.push_back(PlanBlock(call_ns, kBlockNs));
    round_ns_ += std::max(call_ns * 2, kBlockNs);
  }
  return Status::Ok();
}

Status Sweep::RunRound(std::array<Times, kNumPlacements>* times) {
  Times round;
  const std::optional<Placement> first = MeasureClass();
  bool steady = first.has_value();
  // A dropped round ends early: the next one starts with the class that there is now.
  for (size_t c = 0; c < candidates_.size() && steady; ++c) {
    Result<std::vector<double>> block =
        candidates_[c].group->Run(candidates_[c].buffers, plans_[c]);
    if (!block.ok()) return block.status();
    round[static_cast<size_t>(candidates_[c].column)] = std::move(*block);
    steady = MeasureClass() == first;
  }
  if (!steady) {
    ++dropped_;
    return Status::Ok();
  }
  Times& all = (*times)[static_cast<size_t>(*first)];
  for (size_t c = 0; c < kNumColumns; ++c) {
    all[c].insert(all[c].end(), round[c].begin(), round[c].end());
  }
  return Status::Ok();
}

std::optional<Placement> Sweep::MeasureClass() {
  ping_pong_ns_ = PingPongNs(cores_.a, cores_.b);
  return ClassifyPingPong(ping_pong_ns_);
}

}  // namespace ronde::bench
