// Logging to stderr: one line, one write, "ronde[rank] level: text". Off below the threshold at the
// cost of one relaxed load.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace ronde {

enum class LogLevel : int { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3, kOff = 4 };

// Per Runtime, so that two Runtimes in one process log under their own ranks. Thread-safe.
class Logger {
 public:
  explicit Logger(int rank = -1, LogLevel threshold = LogLevel::kWarning)
      : rank_(rank), threshold_(threshold) {}

  bool enabled(LogLevel level) const { return level >= threshold_; }
  void Write(LogLevel level, std::string_view text) const;

 private:
  int rank_;
  LogLevel threshold_;
};

#define RONDE_LOG(logger, level, ...)                                     \
  do {                                                                    \
    if ((logger).enabled(::ronde::LogLevel::level)) {                     \
      (logger).Write(::ronde::LogLevel::level, fmt::format(__VA_ARGS__)); \
    }                                                                     \
  } while (0)

// A broken invariant of Ronde itself (never bad input): prints and aborts the process.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);
#define RONDE_CHECK(condition)                                              \
  do {                                                                      \
    if (!(condition)) ::ronde::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (0)

}  // namespace ronde
