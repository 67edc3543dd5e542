#include "core/launch/summary.h"

#include <algorithm>
#include <csignal>
#include <cstring>

#include <fmt/format.h>

namespace ronde::launch {
namespace {

double Seconds(int64_t ns) {
  return static_cast<double>(ns) / 1e9;
}

// One line per rank, times relative to the first failure.
std::string OtherRank(const JobEnd& job, size_t rank) {
  const RankEnd& end = job.ranks[rank];
  const int64_t after_ns = end.at_ns - job.ranks[static_cast<size_t>(job.first_failed)].at_ns;
  return fmt::format("ronde: rank {}: {}, {:.1f} s {}", rank, DescribeEnd(end),
                     Seconds(after_ns < 0 ? -after_ns : after_ns),
                     after_ns < 0 ? "earlier" : "later");
}

std::vector<std::string> SummarizeFailure(const JobEnd& job) {
  const size_t first = static_cast<size_t>(job.first_failed);
  std::vector<std::string> lines;
  lines.push_back(fmt::format("ronde: rank {} failed{}, {:.1f} s after the start: {}", first,
                              job.ranks.size() > 1 ? " first" : "",
                              Seconds(job.ranks[first].at_ns - job.started_ns),
                              DescribeEnd(job.ranks[first])));
  if (job.last_stderr.empty()) {
    lines.push_back(fmt::format("ronde: rank {} wrote nothing to stderr", first));
  } else {
    lines.push_back(fmt::format("ronde: last lines of rank {}'s stderr:", first));
    for (const std::string& line : job.last_stderr) lines.push_back(fmt::format("  | {}", line));
  }
  for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
    if (rank != first) lines.push_back(OtherRank(job, rank));
  }
  return lines;
}

}  // namespace

std::string SignalName(int number) {
  const char* name = sigabbrev_np(number);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

std::string DescribeEnd(const RankEnd& end) {
  if (!end.by_signal) return fmt::format("exit status {}", end.code);
  if (end.by_launcher) return fmt::format("ended by ronde run with {}", SignalName(end.code));
  if (end.code == SIGKILL) return "killed by SIGKILL (out of memory? see dmesg)";
  const char* description = sigdescr_np(end.code);
  return fmt::format("killed by {}{}", SignalName(end.code),
                     description != nullptr ? fmt::format(" ({})", description) : "");
}

int ExitStatus(const JobEnd& job) {
  if (job.first_failed >= 0) {
    const RankEnd& end = job.ranks[static_cast<size_t>(job.first_failed)];
    return end.by_signal ? 128 + end.code : end.code;
  }
  return job.interrupt_signal != 0 ? 128 + job.interrupt_signal : 0;
}

std::vector<std::string> Summarize(const JobEnd& job) {
  if (job.first_failed >= 0) return SummarizeFailure(job);
  int64_t last_ns = job.started_ns;
  for (const RankEnd& end : job.ranks) last_ns = std::max(last_ns, end.at_ns);
  const double seconds = Seconds(last_ns - job.started_ns);
  if (job.interrupt_signal == 0) {
    return {fmt::format("ronde: {} rank{} ended with exit status 0 after {:.1f} s",
                        job.ranks.size(), job.ranks.size() == 1 ? "" : "s", seconds)};
  }
  std::vector<std::string> lines = {
      fmt::format("ronde: ended after {} at {:.1f} s", SignalName(job.interrupt_signal), seconds)};
  for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
    lines.push_back(fmt::format("ronde: rank {}: {}", rank, DescribeEnd(job.ranks[rank])));
  }
  return lines;
}

}  // namespace ronde::launch
