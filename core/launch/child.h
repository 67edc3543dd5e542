// Starting one rank.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "core/base/fd.h"
#include "core/launch/environment.h"
#include "core/launch/signals.h"
#include "ronde/status.h"

namespace ronde::launch {

struct ChildOptions {
  const std::vector<std::string>* command = nullptr;  // looked up in PATH
  Environment environment;
  std::vector<int> cpus;                  // empty: not bound
  bool inherit_stdin = false;             // otherwise /dev/null
  int keeper_fd = -1;                     // Keeper::fd()
  const SignalReader* signals = nullptr;  // to undo what the launcher has set
  rlimit file_limit = {};                 // likewise
};

// A running rank. It leads a session and a process group of its own, `pid` being the number of
// both: a terminal's Ctrl-C reaches only the launcher, which passes it on exactly once, and rank 0
// may read the terminal without being stopped as a background process would be. Its leader gets
// SIGKILL when the launcher dies.
struct Child {
  pid_t pid = -1;
  UniqueFd pidfd;  // readable once the process has ended
  UniqueFd out;    // the rank's stdout, non-blocking
  UniqueFd err;
};

// Starts it; returns when its program runs. When that program cannot be executed, fails with
// *exec_errno set to the reason; 0 for every other failure. Nothing is left running on failure.
// Called from the process's only thread.
Result<Child> SpawnChild(const ChildOptions& options, int* exec_errno);

}  // namespace ronde::launch
