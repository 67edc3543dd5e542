// `ronde bench`: measures one collective; alone it starts its own ranks, under `ronde run` it is
// one.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bindings/cli/commands.h"
#include "core/launch/job.h"
#include "ronde/runtime.h"
#include "tuning/bench/bench.h"
#include "tuning/bench/sizes.h"

namespace ronde::cli {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

// As typed; what is allowed is checked when all of it is known.
struct Flags {
  std::string collective;
  int ranks = 2;
  std::string min_bytes = "8";
  std::string max_bytes = "64M";
  std::string dtype = "float32";
  std::string op = "sum";
  std::string buffers = "all";
  bench::BenchOptions options;
};

Status Unknown(const char* flag, const std::string& value, const char* allowed) {
  return Status::InvalidArgument(
      fmt::format("{} '{}' is not allowed: must be {}", flag, value, allowed));
}

Result<OpKind> ParseCollective(const std::string& name) {
  for (int k = 0; k < kNumOpKinds; ++k) {
    if (OpKindName(static_cast<OpKind>(k)) == name) return static_cast<OpKind>(k);
  }
  return Unknown("collective", name,
                 "allreduce, allgather, broadcast, reducescatter, alltoall or barrier");
}

Result<std::vector<bench::Buffers>> ParseBuffers(const std::string& name, OpKind kind) {
  using bench::Buffers;
  if (name == "private") return std::vector{Buffers::kPrivate};
  if (name == "arena") return std::vector{Buffers::kArena};
  // All that this collective has.
  if (name == "all" && kind == OpKind::kAllreduce) {
    return std::vector{Buffers::kPrivate, Buffers::kArena};
  }
  if (name == "all") return std::vector{Buffers::kPrivate};
  if (name == "shared") {
    return Status::Unsupported(
        "--buffers shared (one read-only result for all ranks) is not built yet; use private, "
        "arena or all");
  }
  return Unknown("--buffers", name, "private, arena, shared or all");
}

Result<bench::BenchOptions> Interpret(const Flags& flags) {
  bench::BenchOptions options = flags.options;
  const Result<OpKind> kind = ParseCollective(flags.collective);
  if (!kind.ok()) return kind.status();
  options.kind = *kind;
  const Result<std::vector<bench::Buffers>> buffers = ParseBuffers(flags.buffers, *kind);
  if (!buffers.ok()) return buffers.status();
  options.buffers = *buffers;
  const Result<int64_t> low = bench::ParseSize(flags.min_bytes);
  if (!low.ok()) return low.status();
  const Result<int64_t> high = bench::ParseSize(flags.max_bytes);
  if (!high.ok()) return high.status();
  options.min_bytes = *low;
  options.max_bytes = *high;
  const std::optional<DType> dtype = ParseDType(flags.dtype);
  if (!dtype) {
    return Unknown("--dtype", flags.dtype,
                   "bool, uint8, int8, int16, int32, int64, float16, bfloat16, float32 or float64");
  }
  options.dtype = *dtype;
  const std::optional<ReduceOp> op = ParseReduceOp(flags.op);
  if (!op) return Unknown("--op", flags.op, "sum, average, min, max or product");
  options.op = *op;
  RONDE_RETURN_IF_ERROR(bench::ValidateOptions(options));
  return options;
}

Status RunAsRank(const Config& config, const bench::BenchOptions& options, int* exit_status) {
  Result<std::unique_ptr<Runtime>> runtime = Open(config);
  if (!runtime.ok()) return runtime.status();
  bench::Bench benchmark(runtime->get(), options);
  RONDE_RETURN_IF_ERROR(benchmark.Run());
  (*runtime)->Shutdown();
  *exit_status = benchmark.total_wrong() == 0 ? 0 : kExitFailed;
  return Status::Ok();
}

// The same command again, once per rank.
int RunAsLauncher(const std::vector<std::string>& arguments, int ranks) {
  launch::JobOptions job;
  job.command = {std::filesystem::read_symlink("/proc/self/exe").string()};
  job.command.insert(job.command.end(), arguments.begin(), arguments.end());
  job.ranks = ranks;
  job.threads = 1;
  job.prefix = false;  // only rank 0 prints
  return launch::RunJob(job);
}

int RunBenchCommand(const Flags& flags, const std::vector<std::string>& arguments,
                    bool ranks_given) {
  const auto fail = [](const Status& status, int exit_status) {
    fmt::print(stderr, "ronde bench: {}\n", status.ToString());
    return exit_status;
  };
  const Result<bench::BenchOptions> options = Interpret(flags);
  if (!options.ok()) return fail(options.status(), kExitUsage);
  const Result<Config> config = Config::FromEnvironment();
  if (!config.ok()) return fail(config.status(), kExitUsage);
  const bool is_rank = !config->rendezvous.empty() || config->size > 1 || flags.ranks == 1;
  if (!is_rank) return RunAsLauncher(arguments, flags.ranks);
  if (ranks_given && flags.ranks != config->size && config->rank == 0) {
    fmt::print(stderr, "ronde bench: --ranks {} is ignored: the launcher started {}\n", flags.ranks,
               config->size);
  }
  int exit_status = 0;
  const Status status = RunAsRank(*config, *options, &exit_status);
  return status.ok() ? exit_status : fail(status, kExitFailed);
}

}  // namespace

void AddBenchCommand(CLI::App* app, const std::vector<std::string>& arguments, int* exit_status) {
  CLI::App* command = app->add_subcommand("bench", "Measure a collective beside its limit");
  auto flags = std::make_shared<Flags>();
  command
      ->add_option("collective", flags->collective,
                   "allreduce, allgather, broadcast, reducescatter, alltoall or barrier")
      ->required();
  CLI::Option* ranks = command->add_option("--ranks", flags->ranks,
                                           "Ranks to start on this host (not under `ronde run`)");
  ranks->check(CLI::Range(1, launch::kMaxRanks))->capture_default_str();
  command->add_option("--min-bytes", flags->min_bytes, "Smallest size (K, M, G: binary)")
      ->capture_default_str();
  command->add_option("--max-bytes", flags->max_bytes, "Largest size")->capture_default_str();
  command->add_option("--factor", flags->options.factor, "Step between sizes")
      ->capture_default_str();
  command->add_option("--dtype", flags->dtype, "Element type")->capture_default_str();
  command->add_option("--op", flags->op, "sum, average, min, max or product")
      ->capture_default_str();
  command
      ->add_option("--iters", flags->options.iters,
                   "Timed calls per row; default: as many as take a fifth of a second")
      ->check(CLI::Range(1, 1'000'000'000));
  command
      ->add_option("--warmup", flags->options.warmup,
                   "Calls before each block of timed ones; default: a tenth of a block")
      ->check(CLI::Range(0, 1'000'000'000));
  command
      ->add_option("--buffers", flags->buffers,
                   "private (ordinary memory, out of place), arena (a declared set, in place), "
                   "shared (not built yet) or all")
      ->capture_default_str();
  command->add_flag("--check", flags->options.check, "Compare results exactly, count wrong ones");
  command->add_option("--json", flags->options.json, "Also write the rows to FILE")
      ->type_name("FILE");
  command->footer(
      "Prints nccl-tests' columns and, per row, the limit: the time that memory alone allows.\n"
      "Exit status: 0; 1 when elements were wrong or an operation failed; 2 for bad arguments.");
  command->callback([flags, ranks, arguments, exit_status] {
    *exit_status = RunBenchCommand(*flags, arguments, ranks->count() > 0);
  });
}

}  // namespace ronde::cli
