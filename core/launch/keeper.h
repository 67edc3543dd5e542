// Keeper: a small process that cleans up when the launcher itself is killed.
//
// It reads a pipe whose writing end only the launcher holds (and each rank between fork and exec).
// End of file without a goodbye means that the launcher is dead: then every registered process
// group is killed and the job's folder removed. It lives in a session of its own, blocks every
// signal, and keeps no descriptor of the launcher's open, so that `ronde run ... | cat` ends.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "core/base/fd.h"
#include "ronde/status.h"

namespace ronde::launch {

// The launcher's handle on it. Owned by the running job; one thread; ends the process when it goes.
class Keeper {
 public:
  // Forks the process. `directory` (absolute) is removed if the launcher dies.
  static Result<std::unique_ptr<Keeper>> Start(const std::string& directory);
  // Says goodbye and waits until the process has ended.
  ~Keeper();

  pid_t pid() const { return pid_; }
  // For Register; close-on-exec.
  int fd() const { return pipe_.get(); }
  // The process group has no members any more; its number may be used again by others.
  void Forget(pid_t group);

  // Called in a rank between fork and exec, so that no rank ever runs unregistered: the keeper sees
  // no end of file before every such child has written this or died.
  static void Register(int fd, pid_t group);

 private:
  Keeper(pid_t pid, UniqueFd pipe) : pid_(pid), pipe_(std::move(pipe)) {}

  const pid_t pid_;
  UniqueFd pipe_;
};

}  // namespace ronde::launch
