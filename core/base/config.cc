#include "ronde/config.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

extern char** environ;

namespace ronde {
namespace {

// How one field is parsed and printed. A parser returns false when the text is not allowed.
struct Variable {
  const char* name;
  const char* allowed;
  const char* help;
  std::function<bool(const std::string&, Config*)> parse;
  std::function<std::string(const Config&)> print;
};

bool ParseInt(const std::string& text, int64_t low, int64_t high, int64_t* out) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    return false;
  }
  *out = value;
  return true;
}

// "64M", "1.5G", "4096": binary multiples.
bool ParseBytes(const std::string& text, int64_t low, int64_t* out) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || !std::isfinite(number) || number < 0) return false;
  std::string suffix(end);
  if (!suffix.empty() && (suffix.back() == 'B' || suffix.back() == 'b')) suffix.pop_back();
  if (!suffix.empty() && suffix.back() == 'i') suffix.pop_back();
  double factor = 1;
  if (suffix == "K" || suffix == "k") {
    factor = 1024.0;
  } else if (suffix == "M" || suffix == "m") {
    factor = 1048576.0;
  } else if (suffix == "G" || suffix == "g") {
    factor = 1073741824.0;
  } else if (!suffix.empty()) {
    return false;
  }
  const double bytes = number * factor;
  if (bytes < static_cast<double>(low) || bytes > 9.0e18) return false;
  *out = static_cast<int64_t>(bytes);
  return true;
}

std::string PrintBytes(int64_t bytes) {
  for (const auto& [unit, suffix] :
       {std::pair<int64_t, const char*>{1 << 30, "G"}, {1 << 20, "M"}, {1 << 10, "K"}}) {
    if (bytes != 0 && bytes % unit == 0) return fmt::format("{}{}", bytes / unit, suffix);
  }
  return fmt::format("{}", bytes);
}

Variable IntVariable(const char* name, const char* allowed, const char* help, int Config::*field,
                     int64_t low, int64_t high) {
  return {name, allowed, help,
          [=](const std::string& text, Config* config) {
            int64_t value = 0;
            if (!ParseInt(text, low, high, &value)) return false;
            config->*field = static_cast<int>(value);
            return true;
          },
          [=](const Config& config) { return fmt::format("{}", config.*field); }};
}

Variable Int64Variable(const char* name, const char* allowed, const char* help,
                       int64_t Config::*field, int64_t low, int64_t high) {
  return {name, allowed, help,
          [=](const std::string& text, Config* config) {
            return ParseInt(text, low, high, &(config->*field));
          },
          [=](const Config& config) { return fmt::format("{}", config.*field); }};
}

Variable SecondsVariable(const char* name, const char* help, int64_t Config::*field_ms) {
  return {name, "a number of seconds, 0.001 to 1000000", help,
          [=](const std::string& text, Config* config) {
            char* end = nullptr;
            const double seconds = std::strtod(text.c_str(), &end);
            if (end == text.c_str() || *end != '\0' || !(seconds >= 0.001 && seconds <= 1e6)) {
              return false;
            }
            config->*field_ms = static_cast<int64_t>(seconds * 1000);
            return true;
          },
          [=](const Config& config) {
            return fmt::format("{}", static_cast<double>(config.*field_ms) / 1000);
          }};
}

Variable BytesVariable(const char* name, const char* help, int64_t Config::*field, int64_t low) {
  return {name, low > 0 ? "a size of at least 64K, such as 4M or 1G" : "a size such as 512M or 4G",
          help,
          [=](const std::string& text, Config* config) {
            return ParseBytes(text, low, &(config->*field));
          },
          [=](const Config& config) { return PrintBytes(config.*field); }};
}

Variable StringVariable(const char* name, const char* allowed, const char* help,
                        std::string Config::*field, std::vector<std::string> choices = {}) {
  return {
      name, allowed, help,
      [=](const std::string& text, Config* config) {
        if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end()) {
          return false;
        }
        config->*field = text;
        return true;
      },
      [=](const Config& config) { return config.*field; }};
}

Variable OverlapVariable() {
  return {"RONDE_OVERLAP", "auto, on or off",
          "Reduce buckets on the progress thread while the backward pass goes on. auto: only where "
          "cores are free.",
          [](const std::string& text, Config* config) {
            if (text == "auto") {
              config->overlap = Overlap::kAuto;
            } else if (text == "on") {
              config->overlap = Overlap::kOn;
            } else if (text == "off") {
              config->overlap = Overlap::kOff;
            } else {
              return false;
            }
            return true;
          },
          [](const Config& config) -> std::string {
            switch (config.overlap) {
              case Overlap::kAuto:
                return "auto";
              case Overlap::kOn:
                return "on";
              case Overlap::kOff:
                return "off";
            }
            return "?";
          }};
}

const std::vector<Variable>& Variables() {
  constexpr int64_t kMaxRanks = 65535;
  constexpr int64_t kMinBuffer = 64 << 10;
  constexpr int64_t kSecondUs = 1'000'000;
  static const std::vector<Variable> variables = {
      IntVariable("RONDE_RANK", "0 to RONDE_SIZE - 1", "This process's rank; set by the launcher.",
                  &Config::rank, 0, kMaxRanks - 1),
      IntVariable("RONDE_SIZE", "1 to 65535", "Number of ranks; set by the launcher.",
                  &Config::size, 1, kMaxRanks),
      IntVariable("RONDE_LOCAL_RANK", "0 to RONDE_LOCAL_SIZE - 1",
                  "Rank within this host; set by the launcher.", &Config::local_rank, 0,
                  kMaxRanks - 1),
      IntVariable("RONDE_LOCAL_SIZE", "1 to RONDE_SIZE",
                  "Number of ranks on this host; set by the launcher.", &Config::local_size, 1,
                  kMaxRanks),
      StringVariable("RONDE_RENDEZVOUS", "a path of at most 107 bytes",
                     "Unix socket at which the ranks meet; set by the launcher.",
                     &Config::rendezvous),
      StringVariable("RONDE_JOB", "any text", "Identity of the job; set by the launcher.",
                     &Config::job),
      SecondsVariable(
          "RONDE_TIMEOUT_S",
          "No operation waits longer: it fails on every rank and names the missing ones.",
          &Config::timeout_ms),
      SecondsVariable("RONDE_START_TIMEOUT_S", "How long init waits for all ranks to appear.",
                      &Config::start_timeout_ms),
      SecondsVariable("RONDE_STALL_WARN_S",
                      "After this time without progress a warning names the ranks waited for.",
                      &Config::stall_warn_ms),
      Int64Variable(
          "RONDE_SPIN_US", "0 to 1000000 microseconds",
          "How long a waiting thread spins before it sleeps, where every rank has a core.",
          &Config::spin_us, 0, kSecondUs),
      Int64Variable("RONDE_YIELD_US", "0 to 1000000 microseconds",
                    "How long a waiting thread yields before it sleeps, where ranks share cores.",
                    &Config::yield_us, 0, kSecondUs),
      OverlapVariable(),
      BytesVariable("RONDE_BUCKET_BYTES", "Gradients are reduced in buckets of about this size.",
                    &Config::bucket_bytes, kMinBuffer),
      BytesVariable(
          "RONDE_FUSION_BYTES",
          "Named operations that are ready together are fused up to this size (0: never).",
          &Config::fusion_bytes, 0),
      BytesVariable("RONDE_ARENA_MAX",
                    "Upper bound of the memory for gradient arenas per rank (0: half of the "
                    "machine's memory, divided by the ranks on it).",
                    &Config::arena_max_bytes, 0),
      BytesVariable("RONDE_STAGING_MAX",
                    "Upper bound per lane of the shared memory through which private buffers pass.",
                    &Config::staging_max_bytes, kMinBuffer),
      StringVariable("RONDE_RULES", "rules as `ronde doctor` prints them",
                     "Overrides of the table that selects backend and schedule.", &Config::rules),
      StringVariable("RONDE_LOG_LEVEL", "debug, info, warning, error or off",
                     "What is written to stderr.", &Config::log_level,
                     {"debug", "info", "warning", "error", "off"}),
      StringVariable("RONDE_KERNELS", "auto, baseline, avx2 or avx512",
                     "Vector code to use; auto takes the best that the processor has.",
                     &Config::kernels, {"auto", "baseline", "avx2", "avx512"}),
      Int64Variable("RONDE_RECORDER_EVENTS", "0 to 16777216",
                    "Capacity of the ring that records every hop (0: off).",
                    &Config::recorder_events, 0, 1 << 24),
      StringVariable(
          "RONDE_RECORDER_DIR", "a directory",
          "Where the last events are written, as rank-N.jsonl, when a job fails (empty: nowhere).",
          &Config::recorder_dir),
  };
  return variables;
}

// Levenshtein distance, for "did you mean".
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

Status RejectUnknownVariables() {
  constexpr std::string_view kPrefix = "RONDE_";
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    if (!line.starts_with(kPrefix)) continue;
    const std::string_view name = line.substr(0, line.find('='));
    const Variable* nearest = nullptr;
    size_t best = 0;
    for (const Variable& variable : Variables()) {
      const size_t distance = EditDistance(name, variable.name);
      if (nearest == nullptr || distance < best) {
        nearest = &variable;
        best = distance;
      }
    }
    if (best != 0) {
      return Status::InvalidArgument(fmt::format(
          "environment variable {} is not known to Ronde; did you mean {}?", name, nearest->name));
    }
  }
  return Status::Ok();
}

}  // namespace

Result<Config> Config::From(const Getenv& getenv) {
  Config config;
  for (const Variable& variable : Variables()) {
    const std::optional<std::string> text = getenv(variable.name);
    if (!text || text->empty()) continue;
    if (!variable.parse(*text, &config)) {
      return Status::InvalidArgument(fmt::format("{}='{}' is not allowed: must be {}",
                                                 variable.name, *text, variable.allowed));
    }
  }
  if (config.rank >= config.size) {
    return Status::InvalidArgument(fmt::format(
        "RONDE_RANK='{}' is not allowed: must be below RONDE_SIZE={}", config.rank, config.size));
  }
  if (config.local_size > config.size) {
    return Status::InvalidArgument(
        fmt::format("RONDE_LOCAL_SIZE='{}' is not allowed: must be 1 to RONDE_SIZE={}",
                    config.local_size, config.size));
  }
  if (config.local_rank >= config.local_size) {
    return Status::InvalidArgument(
        fmt::format("RONDE_LOCAL_RANK='{}' is not allowed: must be below RONDE_LOCAL_SIZE={}",
                    config.local_rank, config.local_size));
  }
  if (config.size > 1 && config.rendezvous.empty()) {
    return Status::InvalidArgument(fmt::format(
        "RONDE_RENDEZVOUS is not set, but RONDE_SIZE={}: start the job with `ronde run`",
        config.size));
  }
  constexpr size_t kUnixPathMax = 107;
  if (config.rendezvous.size() > kUnixPathMax) {
    return Status::InvalidArgument(
        fmt::format("RONDE_RENDEZVOUS='{}' is not allowed: must be a path of at most {} bytes",
                    config.rendezvous, kUnixPathMax));
  }
  return config;
}

Result<Config> Config::FromEnvironment() {
  RONDE_RETURN_IF_ERROR(RejectUnknownVariables());
  return From([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  });
}

std::vector<ConfigEntry> DescribeConfig(const Config& config) {
  const Config defaults;
  std::vector<ConfigEntry> entries;
  for (const Variable& variable : Variables()) {
    entries.push_back({variable.name, variable.print(config), variable.print(defaults),
                       variable.allowed, variable.help});
  }
  return entries;
}

}  // namespace ronde
