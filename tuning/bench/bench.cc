#include "tuning/bench/bench.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/clock.h"
#include "core/plan/rules.h"
#include "tuning/bench/sizes.h"
#include "tuning/bench/statistics.h"
#include "tuning/bench/system.h"

namespace ronde::bench {
namespace {

constexpr int kBlocks = 5;
constexpr int kMaxBlocks = 3 * kBlocks;
constexpr double kBlockNs = 40e6;
constexpr int64_t kBlockSamples = 200;  // at most, where the number is not asked for

}  // namespace

// An operation and what is known of it so far.
struct Bench::Candidate {
  std::unique_ptr<Operation> operation;
  Buffers buffers;
  bool is_limit;
  BlockPlan plan;
  int64_t calls = 0;
  std::optional<int64_t> wrong;
  std::array<std::vector<double>, kNumPlacements> times_ns;  // per call
};

// What MeasureSize works on.
struct Bench::Size {
  OperationSpec spec;
  std::vector<Candidate> candidates;  // each operation is followed by its limit
};

Status ValidateOptions(const BenchOptions& options) {
  const Result<std::vector<int64_t>> sizes =
      SweepSizes(options.min_bytes, options.max_bytes, options.factor);
  if (!sizes.ok()) return sizes.status();
  for (const Buffers buffers : options.buffers) {
    if (buffers == Buffers::kArena && options.kind != OpKind::kAllreduce) {
      return Status::InvalidArgument(
          fmt::format("--buffers arena is for allreduce only; {} works on private buffers",
                      OpKindName(options.kind)));
    }
  }
  const bool reduces = options.kind == OpKind::kAllreduce || options.kind == OpKind::kReducescatter;
  if (reduces && options.dtype == DType::kBool && options.op == ReduceOp::kAverage) {
    return Status::InvalidArgument("--op average has no meaning for --dtype bool");
  }
  return Status::Ok();
}

Bench::Bench(Runtime* runtime, const BenchOptions& options)
    : runtime_(runtime), options_(options), exchange_(runtime) {}

Bench::~Bench() = default;

Status Bench::Run() {
  RONDE_RETURN_IF_ERROR(ValidateOptions(options_));
  const Result<std::vector<int64_t>> sizes =
      options_.kind == OpKind::kBarrier
          ? std::vector<int64_t>{0}
          : SweepSizes(options_.min_bytes, options_.max_bytes, options_.factor);
  if (!sizes.ok()) return sizes.status();
  RONDE_RETURN_IF_ERROR(Prepare(*sizes));
  if (first()) {
    fmt::print("# ronde bench {}: {}, {} ranks on {} cores\n", RONDE_VERSION,
               OpKindName(options_.kind), runtime_->size(), UsableCpus().size());
    fmt::print("# time: median per call, of the last rank; limit: what memory allows\n#\n{}",
               TableHeader());
  }
  for (const int64_t bytes : *sizes) RONDE_RETURN_IF_ERROR(MeasureSize(bytes));
  if (!first()) return Status::Ok();
  if (rows_.empty()) {
    return Status::OutOfMemory("nothing was measured: no size fits the memory that is available");
  }
  if (options_.check) {
    fmt::print("# Out of bounds values : {} {}\n", total_wrong_,
               total_wrong_ == 0 ? "OK" : "FAILED");
  }
  for (int p = 0; p < kNumPlacements; ++p) {
    const auto placement = static_cast<Placement>(p);
    const bool seen = std::any_of(rows_.begin(), rows_.end(), [placement](const Row& row) {
      return row.placement == placement;
    });
    if (!seen) fmt::print("# class {}: not seen\n", PlacementName(placement));
  }
  if (dropped_blocks_ > 0) {
    fmt::print("# blocks dropped because the cores' placement changed: {}\n", dropped_blocks_);
  }
  return options_.json.empty() ? Status::Ok() : WriteJson();
}

Status Bench::Prepare(const std::vector<int64_t>& sizes) {
  if (runtime_->local_size() != runtime_->size()) {
    return Status::Unsupported("ronde bench measures ranks of one host only");
  }
  const std::vector<int> cpus = UsableCpus();
  const int64_t ends[] = {cpus.front(), cpus.back()};
  const auto all = exchange_.Gather(ends);
  if (!all.ok()) return all.status();
  const auto as_ints = [](const std::vector<int64_t>& values) {
    return std::vector<int>(values.begin(), values.end());
  };
  cores_ = PickCores(as_ints(all->front()), as_ints(all->back()));

  // Every size's slots fit: small ones are kept in several copies, below twice the cache together.
  std::string path;
  if (first()) {
    Result<SharedMemory> memory =
        SharedMemory::Create(LimitSharedBytes(Buffers::kArena, sizes.back(), runtime_->size()) +
                             2 * LastLevelCacheBytes() * runtime_->size());
    if (!memory.ok()) return memory.status();
    limit_memory_ = std::make_unique<SharedMemory>(std::move(memory).value());
    path = limit_memory_->path();
  }
  const Result<std::string> shared_path = exchange_.BroadcastText(path);
  if (!shared_path.ok()) return shared_path.status();
  if (!first()) {
    Result<SharedMemory> memory = SharedMemory::Open(*shared_path);
    if (!memory.ok()) return memory.status();
    limit_memory_ = std::make_unique<SharedMemory>(std::move(memory).value());
  }
  return Status::Ok();
}

Status Bench::MeasureSize(int64_t bytes) {
  bool enough = true;
  RONDE_RETURN_IF_ERROR(EnoughMemory(bytes, &enough));
  if (!enough) return Status::Ok();
  Size size;
  size.spec = {options_.kind, options_.dtype, options_.op,
               SizeOperation(options_.kind, bytes, static_cast<int64_t>(DTypeSize(options_.dtype)),
                             runtime_->size())};
  Progress(fmt::format("{}: preparing", FormatSize(bytes)));
  RONDE_RETURN_IF_ERROR(MakeCandidates(&size));
  RONDE_RETURN_IF_ERROR(PlanBlocks(&size));
  int good = 0;
  for (int block = 0; block < kMaxBlocks && good < kBlocks; ++block) {
    Progress(fmt::format("{}: block {} of {}", FormatSize(bytes), good + 1, kBlocks));
    bool steady = false;
    RONDE_RETURN_IF_ERROR(RunBlock(&size, &steady));
    if (steady) ++good;
  }
  Progress("");
  if (good == 0 && first()) {
    fmt::print("# {}: the cores' placement did not keep still (last ping-pong {:.0f} ns)\n",
               FormatSize(bytes), ping_pong_ns_);
  }
  AddRows(size);
  return Status::Ok();
}

Status Bench::MakeCandidates(Size* size) {
  for (const Buffers buffers : options_.buffers) {
    std::unique_ptr<CheckedOperation> operation;
    switch (buffers) {
      case Buffers::kPrivate:
        operation = std::make_unique<PrivateOperation>(runtime_, size->spec, &private_memory_);
        break;
      case Buffers::kArena: {
        Result<std::unique_ptr<ArenaOperation>> arena =
            ArenaOperation::Create(runtime_, size->spec);
        if (!arena.ok()) return arena.status();
        operation = std::move(arena).value();
        break;
      }
    }
    std::optional<int64_t> wrong;
    if (options_.check) {
      const PredictableData data(options_.kind, options_.dtype, options_.op, runtime_->size(),
                                 static_cast<uint64_t>(size->spec.sizing.bytes));
      const Result<int64_t> mine = operation->Check(data);
      if (!mine.ok()) return mine.status();
      const Result<int64_t> all = exchange_.Sum(*mine);
      if (!all.ok()) return all.status();
      wrong = *all;
      total_wrong_ += *all;
    }
    size->candidates.push_back({std::move(operation), buffers, false, {}, 0, wrong, {}});
    size->candidates.push_back(
        {std::make_unique<LimitOperation>(buffers, size->spec, &limit_private_memory_,
                                          *limit_memory_, runtime_->rank(), runtime_->size()),
         buffers,
         true,
         {},
         0,
         std::nullopt,
         {}});
  }
  return Status::Ok();
}

// Rank 0's clock decides, for all ranks must do the same number of calls.
Status Bench::PlanBlocks(Size* size) {
  double round_ns = 0;
  for (Candidate& candidate : size->candidates) {
    double call_ns = 0;
    // The first calls touch memory; very short ones are measured again, many together.
    for (const int64_t calls : {2, 2, 100}) {
      if (calls > 2) {
        int64_t again = call_ns < 1e6 ? 1 : 0;
        RONDE_RETURN_IF_ERROR(exchange_.Broadcast({&again, 1}));
        if (again == 0) break;
      }
      RONDE_RETURN_IF_ERROR(candidate.operation->BeginSample());
      const int64_t start = NowNs();
      for (int64_t k = 0; k < calls; ++k) {
        RONDE_RETURN_IF_ERROR(candidate.operation->Run(candidate.calls++));
      }
      call_ns = static_cast<double>(NowNs() - start) / static_cast<double>(calls);
    }
    candidate.plan = PlanBlock(call_ns, kBlockNs / static_cast<double>(size->candidates.size()));
    if (options_.iters > 0) candidate.plan.inner = std::min(candidate.plan.inner, options_.iters);
    round_ns += call_ns * static_cast<double>(candidate.plan.inner);
  }
  const auto fitting = static_cast<int64_t>(kBlockNs / std::max(round_ns, 1.0));
  for (Candidate& candidate : size->candidates) {
    BlockPlan& plan = candidate.plan;
    // Interleaved, so all have the same number of samples.
    plan.samples = std::clamp<int64_t>(fitting, 1, kBlockSamples);
    if (options_.iters > 0) {
      const int64_t per_block = plan.inner * kBlocks;
      plan.samples = (options_.iters + per_block - 1) / per_block;
    }
    if (options_.warmup >= 0) plan.warmup = options_.warmup;
    int64_t values[] = {plan.warmup, plan.samples, plan.inner};
    RONDE_RETURN_IF_ERROR(exchange_.Broadcast(values));
    plan = {values[0], values[1], values[2]};
  }
  return Status::Ok();
}

Status Bench::RunBlock(Size* size, bool* steady) {
  const Result<std::optional<Placement>> before = MeasureClass();
  if (!before.ok()) return before.status();
  const Result<std::vector<std::vector<int64_t>>> stamps = TimeSamples(size);
  if (!stamps.ok()) return stamps.status();
  const Result<std::optional<Placement>> after = MeasureClass();
  if (!after.ok()) return after.status();
  *steady = before->has_value() && *before == *after;
  if (!*steady) {
    ++dropped_blocks_;
    return Status::Ok();
  }
  const std::vector<double> times = GroupTimes(*stamps);
  for (size_t i = 0; i < times.size(); ++i) {
    Candidate& candidate = size->candidates[i % size->candidates.size()];
    candidate.times_ns[static_cast<size_t>(**before)].push_back(
        times[i] / static_cast<double>(candidate.plan.inner));
  }
  return Status::Ok();
}

// The stamps of all ranks: sample by sample, the candidates one after the other.
Result<std::vector<std::vector<int64_t>>> Bench::TimeSamples(Size* size) {
  for (Candidate& candidate : size->candidates) {
    RONDE_RETURN_IF_ERROR(candidate.operation->BeginSample());
    for (int64_t k = 0; k < candidate.plan.warmup; ++k) {
      RONDE_RETURN_IF_ERROR(candidate.operation->Run(candidate.calls++));
    }
  }
  const int64_t samples = size->candidates.front().plan.samples;
  std::vector<int64_t> stamps;
  stamps.reserve(static_cast<size_t>(samples) * size->candidates.size() + 1);
  stamps.push_back(NowNs());
  for (int64_t sample = 0; sample < samples; ++sample) {
    for (Candidate& candidate : size->candidates) {
      RONDE_RETURN_IF_ERROR(candidate.operation->BeginSample());
      for (int64_t k = 0; k < candidate.plan.inner; ++k) {
        RONDE_RETURN_IF_ERROR(candidate.operation->Run(candidate.calls++));
      }
      stamps.push_back(NowNs());
    }
  }
  return exchange_.Gather(stamps);
}

// Rank 0 measures; the others sleep in the broadcast meanwhile.
Result<std::optional<Placement>> Bench::MeasureClass() {
  int64_t picoseconds = 0;
  if (first()) picoseconds = static_cast<int64_t>(PingPongNs(cores_.a, cores_.b) * 1000);
  RONDE_RETURN_IF_ERROR(exchange_.Broadcast({&picoseconds, 1}));
  ping_pong_ns_ = static_cast<double>(picoseconds) / 1000;
  return ClassifyPingPong(ping_pong_ns_);
}

// Who carried it out: the rules say so for private buffers; arenas have one schedule.
void Bench::NameSchedule(Row* row) const {
  row->backend = runtime_->size() == 1 ? "solo" : "shm";
  row->schedule = runtime_->size() == 1 ? "copy" : "inplace";
  if (runtime_->size() == 1 || row->buffers == Buffers::kArena) return;
  const Result<RuleTable> rules = RuleTable::Make(runtime_->config().rules);
  if (!rules.ok()) return;  // the Runtime has refused such rules
  const Rule& rule =
      rules->Find(row->kind, row->count * static_cast<int64_t>(DTypeSize(row->dtype)));
  row->backend = rule.backend;
  row->schedule = ScheduleName(rule.schedule);
}

void Bench::AddRows(const Size& size) {
  for (size_t p = 0; p < kNumPlacements; ++p) {
    for (size_t c = 0; c + 1 < size.candidates.size(); c += 2) {
      const Candidate& candidate = size.candidates[c];
      const Candidate& limit = size.candidates[c + 1];
      if (candidate.times_ns[p].empty()) continue;
      Row row;
      row.kind = options_.kind;
      row.dtype = options_.dtype;
      row.op = options_.op;
      row.bytes = size.spec.sizing.bytes;
      row.count = size.spec.sizing.input_count;
      row.ranks = runtime_->size();
      row.buffers = candidate.buffers;
      row.placement = static_cast<Placement>(p);
      std::vector<double> times_us = candidate.times_ns[p];
      for (double& time : times_us) time /= 1000;
      row.time_us = Summarize(std::move(times_us));
      NameSchedule(&row);
      row.wrong = candidate.wrong;
      row.limit_us = Summarize(limit.times_ns[p]).median / 1000;
      if (first()) fmt::print("{}", TableLine(row));
      rows_.push_back(row);
    }
  }
  if (first()) std::fflush(stdout);
}

Status Bench::EnoughMemory(int64_t bytes, bool* enough) {
  const int64_t private_bytes = 4 * std::max(bytes, LastLevelCacheBytes());
  const int64_t arena_bytes = 2 * bytes * RotationCopies(bytes, kMaxArenaCopies);
  const int64_t needed = runtime_->size() * (private_bytes + arena_bytes);
  int64_t available = AvailableMemoryBytes();
  RONDE_RETURN_IF_ERROR(exchange_.Broadcast({&available, 1}));
  *enough = needed < available / 10 * 9;
  if (!*enough && first()) {
    fmt::print("# {}: left out, needs {} MiB of memory and {} are available\n", FormatSize(bytes),
               needed >> 20, available >> 20);
  }
  return Status::Ok();
}

void Bench::Progress(const std::string& text) const {
  if (first() && isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r\033[K{}", text);
}

Status Bench::WriteJson() const {
  nlohmann::json rows = nlohmann::json::array();
  for (const Row& row : rows_) rows.push_back(RowJson(row));
  const nlohmann::json config = {
      {"version", RONDE_VERSION},
      {"collective", OpKindName(options_.kind)},
      {"ranks", runtime_->size()},
      {"cores", UsableCpus().size()},
      {"threads_per_rank", 1},
      {"min_bytes", options_.min_bytes},
      {"max_bytes", options_.max_bytes},
      {"factor", options_.factor},
      {"dtype", DTypeName(options_.dtype)},
      {"op", ReduceOpName(options_.op)},
      {"iters", options_.iters},
      {"warmup", options_.warmup},
      {"check", options_.check},
      {"blocks_dropped", dropped_blocks_},
  };
  const nlohmann::json document = {{"config", config}, {"rows", rows}};
  return WriteTextFile(options_.json, document.dump(1) + "\n");
}

}  // namespace ronde::bench
