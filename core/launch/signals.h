// SignalReader: the launcher's signals as something to poll.
#pragma once

#include <csignal>
#include <optional>

#include "core/base/fd.h"
#include "ronde/status.h"

namespace ronde::launch {

// Blocks the signals that a launcher acts on, and SIGPIPE, until it goes. Changes the calling
// process as a whole, so there is one per process; one thread.
class SignalReader {
 public:
  // SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCHLD; SIGHUP unless it is ignored
  // (nohup).
  static Result<SignalReader> Open();
  SignalReader(SignalReader&& other) noexcept = default;
  SignalReader& operator=(SignalReader&&) = delete;
  ~SignalReader();

  int fd() const { return fd_.get(); }
  // The next pending signal, if there is one; never blocks.
  std::optional<int> Next();

  // For a child between fork and exec: the mask as it was, and these signals' default actions.
  void RestoreInChild() const;

 private:
  SignalReader(UniqueFd fd, sigset_t taken, sigset_t original)
      : fd_(std::move(fd)), taken_(taken), original_(original) {}

  UniqueFd fd_;
  sigset_t taken_;
  sigset_t original_;
};

// One that asks the job to end, as opposed to SIGUSR1, SIGUSR2.
bool IsEndingSignal(int number);

}  // namespace ronde::launch
