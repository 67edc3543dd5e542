// Config: every RONDE_* environment variable, in one object. Nothing else in Ronde reads the
// environment.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ronde/status.h"

#pragma GCC visibility push(default)
namespace ronde {

enum class Overlap : uint8_t { kAuto, kOn, kOff };

// Plain values, constant once a Runtime has been made from them. The comment of each field is short
// on purpose: the text that users read is in the table of core/base/config.cc.
struct Config {
  // Who we are. Set by `ronde run`; a process without them is a job of size 1.
  int rank = 0;              // RONDE_RANK
  int size = 1;              // RONDE_SIZE
  int local_rank = 0;        // RONDE_LOCAL_RANK
  int local_size = 1;        // RONDE_LOCAL_SIZE
  std::string rendezvous;    // RONDE_RENDEZVOUS: path of the Unix socket on which rank 0 listens
  std::string job = "solo";  // RONDE_JOB: random per job; ranks of another job are refused

  // Waiting.
  int64_t timeout_ms = 600'000;       // RONDE_TIMEOUT_S
  int64_t start_timeout_ms = 60'000;  // RONDE_START_TIMEOUT_S
  int64_t stall_warn_ms = 60'000;     // RONDE_STALL_WARN_S
  int64_t spin_us = 250;              // RONDE_SPIN_US
  int64_t yield_us = 500;             // RONDE_YIELD_US
  Overlap overlap = Overlap::kAuto;   // RONDE_OVERLAP

  // Memory and plans.
  int64_t bucket_bytes = 4 << 20;         // RONDE_BUCKET_BYTES
  int64_t fusion_bytes = 64 << 20;        // RONDE_FUSION_BYTES
  int64_t arena_max_bytes = 0;            // RONDE_ARENA_MAX (0: half of the machine's memory)
  int64_t staging_max_bytes = 256 << 20;  // RONDE_STAGING_MAX
  std::string rules;                      // RONDE_RULES: overrides of the selection table

  // Diagnosis.
  std::string log_level = "warning";  // RONDE_LOG_LEVEL
  std::string kernels = "auto";       // RONDE_KERNELS
  int64_t recorder_events = 4096;     // RONDE_RECORDER_EVENTS
  std::string recorder_dir;           // RONDE_RECORDER_DIR

  using Getenv = std::function<std::optional<std::string>(const std::string& name)>;

  // Reads the process's environment. InvalidArgument names the variable, its value and what is
  // allowed; an unknown RONDE_* variable is an error too, with the nearest known name.
  static Result<Config> FromEnvironment();
  // The same from any source, for tests; cannot see unknown names.
  static Result<Config> From(const Getenv& getenv);
};

// One line of `ronde doctor` and of the documentation.
struct ConfigEntry {
  std::string name;           // "RONDE_TIMEOUT_S"
  std::string value;          // effective, as a user would type it
  std::string default_value;  // likewise
  std::string allowed;        // "a number of seconds > 0"
  std::string help;
};

// Every variable with its effective value, in the order of the documentation.
std::vector<ConfigEntry> DescribeConfig(const Config& config);

}  // namespace ronde
#pragma GCC visibility pop
