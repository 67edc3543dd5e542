#include "core/launch/child.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "core/launch/keeper.h"

extern char** environ;

namespace ronde::launch {
namespace {

struct Pipe {
  UniqueFd reader;
  UniqueFd writer;
};

Result<Pipe> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Status::FromErrno("pipe");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

void BindTo(const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  cpu_set_t sets[8];
  memset(sets, 0, sizeof(sets));
  for (const int cpu : cpus) CPU_SET_S(static_cast<size_t>(cpu), sizeof(sets), sets);
  sched_setaffinity(0, sizeof(sets), sets);
}

// The child's side. Reports to `failure` only when the program could not be executed.
[[noreturn]] void Become(const ChildOptions& options, pid_t launcher, int out, int err,
                         int failure) {
  setsid();
  Keeper::Register(options.keeper_fd, getpid());
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The launcher may have died before the line above.
  if (getppid() != launcher) _exit(127);
  BindTo(options.cpus);
  if (!options.inherit_stdin) {
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
  }
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  setrlimit(RLIMIT_NOFILE, &options.file_limit);
  options.signals->RestoreInChild();
  const std::vector<char*> arguments = Pointers(*options.command);
  std::vector<char*> environment = Pointers(options.environment);
  environ = environment.data();
  execvp(arguments[0], arguments.data());
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(failure, &error, sizeof(error));
  _exit(127);
}

// The errno of a failed exec; 0 when the program runs.
int ExecError(int reader) {
  int error = 0;
  ssize_t got = 0;
  do {
    got = read(reader, &error, sizeof(error));
  } while (got < 0 && errno == EINTR);
  return got == sizeof(error) ? error : 0;
}

}  // namespace

Result<Child> SpawnChild(const ChildOptions& options, int* exec_errno) {
  *exec_errno = 0;
  Result<Pipe> out = MakePipe();
  RONDE_RETURN_IF_ERROR(out.status());
  Result<Pipe> err = MakePipe();
  RONDE_RETURN_IF_ERROR(err.status());
  Result<Pipe> failure = MakePipe();
  RONDE_RETURN_IF_ERROR(failure.status());

  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid < 0) return Status::FromErrno("fork");
  if (pid == 0) {
    Become(options, launcher, out->writer.get(), err->writer.get(), failure->writer.get());
  }
  failure->writer.Reset();
  *exec_errno = ExecError(failure->reader.get());
  Child child;
  child.pid = pid;
  child.pidfd = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (*exec_errno != 0 || !child.pidfd.valid()) {
    const Status status =
        *exec_errno != 0
            ? Status::InvalidArgument(fmt::format("cannot execute '{}': {}",
                                                  options.command->front(), strerror(*exec_errno)))
            : Status::FromErrno("pidfd_open (Linux 5.3 or later is needed)");
    kill(-pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return status;
  }
  for (const int fd : {out->reader.get(), err->reader.get()}) fcntl(fd, F_SETFL, O_NONBLOCK);
  child.out = std::move(out->reader);
  child.err = std::move(err->reader);
  return child;
}

}  // namespace ronde::launch
