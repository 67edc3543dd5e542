// The command `ronde`.
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "bindings/cli/commands.h"

namespace {

constexpr int kExitUsage = 2;

// The error in Ronde's form: which command, what, and where to read more.
int ReportUsageError(const CLI::App& app, const CLI::ParseError& error) {
  std::string name = "ronde";
  for (const CLI::App* used : app.get_subcommands()) name += " " + used->get_name();
  fmt::print(stderr, "{}: {}\n{}: see '{} --help'\n", name, error.what(), name, name);
  return kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Ronde: collective communication for data-parallel training.", "ronde");
  app.set_version_flag("--version", "ronde " RONDE_VERSION);
  app.require_subcommand(0, 1);
  int exit_status = 0;
  ronde::cli::AddRunCommand(&app, &exit_status);
  ronde::cli::AddBenchCommand(&app, {argv + 1, argv + argc}, &exit_status);
  ronde::cli::AddDoctorCommand(&app, &exit_status);
  try {
    std::vector<std::string> words(argv + 1, argv + argc);
    ronde::cli::DropSeparator(app, &words);
    std::reverse(words.begin(), words.end());  // as CLI11 takes a vector
    app.parse(std::move(words));
    if (app.get_subcommands().empty()) throw CLI::ParseError("a command is missing", kExitUsage);
  } catch (const CLI::ParseError& error) {
    const bool is_request = error.get_exit_code() == 0;  // --help, --version
    return is_request ? app.exit(error) : ReportUsageError(app, error);
  }
  return exit_status;
}
