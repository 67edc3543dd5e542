// RunJob: starts the ranks of a job on this host, relays their output, and ends them together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/limits.h"
#include "core/launch/affinity.h"

namespace ronde::launch {

inline constexpr int kMaxRanks = kMaxLocalRanks;

// Exit statuses of RunJob when no rank ran; the last three are those of shells and of env(1).
inline constexpr int kExitUsage = 2;
inline constexpr int kExitCannotStart = 125;
inline constexpr int kExitCannotExecute = 126;
inline constexpr int kExitNotFound = 127;

struct JobOptions {
  std::vector<std::string> command;  // at least one word; looked up in PATH
  int ranks = 1;                     // 1 to kMaxRanks
  int threads = 0;                   // of OpenMP, MKL, OpenBLAS per rank; 0: usable cores / ranks,
                                     // where the user has not set them
  Bind bind = Bind::kNone;
  bool prefix = true;       // "[rank] " before each line; a job of one rank never has it
  std::string output_dir;   // also writes rank.R.stdout and rank.R.stderr there; empty: no files
  bool quiet = false;       // no console copy of the ranks' output
  int64_t grace_ms = 2000;  // from the first failure to SIGTERM, and from that to SIGKILL
  bool verbose = false;
};

// Runs the job to its end and returns the exit status for the launcher: 0; the first failing rank's
// exit status, or 128 + its signal; 128 + the signal by which the user ended the job; or one of the
// above. Messages and the closing summary go to stderr.
//
// When a rank fails, the others have grace_ms to notice and report; then they get SIGTERM, then
// SIGKILL. A rank that ends with status 0 does not end the others. SIGINT, SIGTERM, SIGHUP,
// SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to every rank's process group, in which case the ranks
// end in their own time (they may be saving a checkpoint); a second SIGINT kills them. SIGTSTP
// stops the ranks with the launcher. Processes that a rank leaves behind in its group are ended
// too. Nothing outlives the launcher, whichever way it ends (see Keeper).
//
// Blocks. For a process with one thread that does nothing else: takes over signals, adopts
// orphaned grandchildren, raises the soft limit of open files.
int RunJob(const JobOptions& options);

}  // namespace ronde::launch
