#include "core/base/log.h"

#include <unistd.h>

#include <cstdlib>

namespace ronde {
namespace {

constexpr std::string_view LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
    case LogLevel::kOff:
      return "off";
  }
  return "?";
}

// stderr may be closed or full; a log line that cannot be written is not worth an error.
void WriteLine(const std::string& line) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

void Logger::Write(LogLevel level, std::string_view text) const {
  const std::string who = rank_ >= 0 ? fmt::format("[{}]", rank_) : "";
  WriteLine(fmt::format("ronde{} {}: {}\n", who, LevelName(level), text));
}

void CheckFailed(const char* file, int line, const char* condition) {
  WriteLine(
      fmt::format("ronde: internal error at {}:{}: {} does not hold\n", file, line, condition));
  std::abort();
}

}  // namespace ronde
