#include "core/launch/signals.h"

#include <sys/signalfd.h>

namespace ronde::launch {
namespace {

constexpr int kSignals[] = {SIGINT,  SIGTERM, SIGQUIT, SIGHUP, SIGUSR1,
                            SIGUSR2, SIGTSTP, SIGCHLD, SIGPIPE};

bool IsIgnored(int number) {
  struct sigaction action = {};
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

Result<SignalReader> SignalReader::Open() {
  // Inherited as ignored, it would make the kernel drop the ranks' exit statuses.
  signal(SIGCHLD, SIG_DFL);
  sigset_t taken;
  sigset_t original;
  sigemptyset(&taken);
  for (const int number : kSignals) {
    if (number != SIGHUP || !IsIgnored(SIGHUP)) sigaddset(&taken, number);
  }
  if (sigprocmask(SIG_BLOCK, &taken, &original) != 0) return Status::FromErrno("sigprocmask");
  UniqueFd fd(signalfd(-1, &taken, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd.valid()) {
    const Status status = Status::FromErrno("signalfd");
    sigprocmask(SIG_SETMASK, &original, nullptr);
    return status;
  }
  return SignalReader(std::move(fd), taken, original);
}

SignalReader::~SignalReader() {
  if (!fd_.valid()) return;
  // Those that came meanwhile (a SIGPIPE, a third Ctrl-C) have been dealt with.
  while (Next()) {
  }
  sigprocmask(SIG_SETMASK, &original_, nullptr);
}

std::optional<int> SignalReader::Next() {
  signalfd_siginfo info = {};
  if (read(fd_.get(), &info, sizeof(info)) != sizeof(info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

void SignalReader::RestoreInChild() const {
  for (const int number : kSignals) {
    // A shell starts background jobs with SIGINT ignored; a rank that ignores it could not be
    // interrupted through us.
    if (sigismember(&taken_, number) == 1) signal(number, SIG_DFL);
  }
  // Ignoring it for a moment drops one that is pending from writing to a dead keeper.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &original_, nullptr);
}

bool IsEndingSignal(int number) {
  return number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
}

}  // namespace ronde::launch
