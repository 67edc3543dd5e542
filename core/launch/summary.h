// How a job ended: its exit status, and the text that tells the user which rank failed first.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ronde::launch {

// How one rank ended.
struct RankEnd {
  bool by_signal = false;
  int code = 0;              // exit status, or the signal's number
  bool by_launcher = false;  // we sent that signal, because another rank had failed
  int64_t at_ns = 0;         // NowNs()

  bool failed() const { return by_signal || code != 0; }
};

struct JobEnd {
  int64_t started_ns = 0;
  int first_failed = -1;     // rank; -1: none failed by itself
  int interrupt_signal = 0;  // the first SIGINT, SIGTERM, SIGHUP or SIGQUIT that was passed on
  std::vector<RankEnd> ranks;
  std::vector<std::string> last_stderr;  // of the first failing rank
};

// "SIGSEGV"; "signal 64" for those without a name.
std::string SignalName(int number);
// "exit status 3", "killed by SIGSEGV (Segmentation fault)".
std::string DescribeEnd(const RankEnd& end);

// The first failing rank's exit status, or 128 + its signal; else 128 + the signal that the user
// sent; else 0.
int ExitStatus(const JobEnd& job);

// The closing lines: the first failing rank with its last lines of stderr, then one
// line for every other rank; for an interrupted or successful job a line each.
std::vector<std::string> Summarize(const JobEnd& job);

}  // namespace ronde::launch
