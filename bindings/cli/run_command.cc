// `ronde run`: options in, JobOptions out.
#include <charconv>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "bindings/cli/commands.h"
#include "core/launch/job.h"

namespace ronde::cli {
namespace {

// A whole number in a range; the message names the value and what is allowed.
CLI::Validator WholeNumber(int low, int high) {
  return CLI::Validator(
      [low, high](std::string& text) -> std::string {
        int value = 0;
        const char* end = text.data() + text.size();
        const auto [at, error] = std::from_chars(text.data(), end, value);
        if (error == std::errc() && at == end && value >= low && value <= high) return "";
        return fmt::format("'{}' is not allowed: must be a whole number, {} to {}", text, low,
                           high);
      },
      "");
}

CLI::Validator Seconds(double high) {
  return CLI::Validator(
      [high](std::string& text) -> std::string {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        if (end != text.c_str() && *end == '\0' && value >= 0 && value <= high) return "";
        return fmt::format("'{}' is not allowed: must be a number of seconds, 0 to {}", text, high);
      },
      "");
}

CLI::Validator BindName() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        if (launch::ParseBind(text).ok()) return "";
        return fmt::format("'{}' is not allowed: must be none, core or numa", text);
      },
      "");
}

class RunFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: ronde run -n N [options] command...\n\n";
  }
};

struct Flags {
  launch::JobOptions job;
  std::string bind = "none";
  double grace_s = 2;
};

void AddOptions(CLI::App* run, Flags* flags) {
  launch::JobOptions* job = &flags->job;
  run->add_option("-n", job->ranks, "Ranks to start on this host")
      ->required()
      ->type_name("N")
      ->check(WholeNumber(1, launch::kMaxRanks));
  run->add_option("--threads", job->threads,
                  "Threads per rank for OpenMP, MKL and OpenBLAS (OMP_NUM_THREADS and so on); "
                  "default: usable cores / ranks, where those variables are not set")
      ->type_name("T")
      ->check(WholeNumber(1, 4096));
  run->add_option("--bind", flags->bind,
                  "Pin ranks: core (an equal share of the usable cores each), numa (the cores of "
                  "one NUMA node) or none (default)")
      ->type_name("WHERE")
      ->check(BindName());
  CLI::Option* output =
      run->add_option("--output", job->output_dir,
                      "Also write each rank's output to DIR/rank.R.stdout and DIR/rank.R.stderr")
          ->type_name("DIR");
  run->add_flag("--quiet", job->quiet, "With --output: no copy of the ranks' output here")
      ->needs(output);
  run->add_flag_callback(
      "--no-prefix", [job] { job->prefix = false; },
      "No '[rank] ' before each line (a job of one rank never has it)");
  run->add_option("--grace", flags->grace_s,
                  "Seconds that the other ranks have after the first failure until SIGTERM, and "
                  "after that until SIGKILL; default: 2")
      ->type_name("S")
      ->check(Seconds(86400));
  run->add_flag("--verbose", job->verbose, "Also report processes, places and success");
}

// CLI11 leaves everything from the first word that is no option of ours.
void TakeCommand(const CLI::App& run, launch::JobOptions* job) {
  job->command = run.remaining();
  if (job->command.empty()) throw CLI::ParseError("a command to run is missing", 2);
  if (job->command.front().starts_with("-")) {
    throw CLI::ParseError(fmt::format("unknown option '{}'", job->command.front()), 2);
  }
}

}  // namespace

void AddRunCommand(CLI::App* app, int* exit_status) {
  CLI::App* run = app->add_subcommand("run", "Start the ranks of a job on this host");
  run->formatter(std::make_shared<RunFormatter>());
  run->footer(
      "Exit status: 0 when every rank ended with 0; otherwise that of the first failing rank, or\n"
      "128 + the number of the signal that ended it; 130 after Ctrl-C, 127 when there is no such\n"
      "command.\n"
      "Ctrl-C and other signals go to every rank; a second Ctrl-C kills them.");
  run->prefix_command();
  auto flags = std::make_shared<Flags>();
  AddOptions(run, flags.get());
  run->callback([run, flags, exit_status] {
    TakeCommand(*run, &flags->job);
    flags->job.bind = *launch::ParseBind(flags->bind);
    flags->job.grace_ms = static_cast<int64_t>(flags->grace_s * 1000);
    *exit_status = launch::RunJob(flags->job);
  });
}

void DropSeparator(const CLI::App& app, std::vector<std::string>* words) {
  if (words->empty() || words->front() != "run") return;
  const CLI::App* run = app.get_subcommand("run");
  size_t i = 1;
  while (i < words->size() && (*words)[i].starts_with("-") && (*words)[i] != "--") {
    const CLI::Option* option = run->get_option_no_throw((*words)[i]);
    const bool takes_value = option != nullptr && option->get_expected_max() > 0;
    i += takes_value ? 2 : 1;
  }
  if (i < words->size() && (*words)[i] == "--") {
    words->erase(words->begin() + static_cast<ptrdiff_t>(i));
  }
}

}  // namespace ronde::cli
