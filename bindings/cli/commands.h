// The subcommands of `ronde`: one function each, which adds the subcommand to the program.
//
// A subcommand runs while CLI11 parses, and leaves the program's exit status in *exit_status. Both
// pointers must outlive the parsing. Called from main only.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace ronde::cli {

// `ronde run -n N [options] command...`
void AddRunCommand(CLI::App* app, int* exit_status);
// `words`, the program's arguments, may have "--" between the options of `run` and its command;
// CLI11 would keep the rest from `run`, so it is taken out before parsing.
void DropSeparator(const CLI::App& app, std::vector<std::string>* words);

// `ronde bench COLLECTIVE [options]`. `arguments`: the program's own, with which it starts its
// ranks.
void AddBenchCommand(CLI::App* app, const std::vector<std::string>& arguments, int* exit_status);

// `ronde doctor`
void AddDoctorCommand(CLI::App* app, int* exit_status);

}  // namespace ronde::cli
