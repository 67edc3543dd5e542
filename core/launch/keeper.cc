#include "core/launch/keeper.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <set>

#include "core/launch/private_directory.h"

namespace ronde::launch {
namespace {

enum class Kind : int32_t { kRegister = 1, kForget = 2, kGoodbye = 3 };

// Smaller than PIPE_BUF: written and read whole.
struct Record {
  Kind kind;
  int32_t group;
};

void Send(int fd, Record record) {
  // A keeper that was killed cannot be told: the launcher cleans up by itself then.
  while (write(fd, &record, sizeof(record)) < 0 && errno == EINTR) {
  }
}

// False at the end of file.
bool Receive(int fd, Record* record) {
  ssize_t got = 0;
  do {
    got = read(fd, record, sizeof(*record));
  } while (got < 0 && errno == EINTR);
  return got == sizeof(*record);
}

// Leaves the pipe as descriptor 3, /dev/null below it, and nothing above.
void DropEverythingBut(int pipe) {
  constexpr int kPipe = 3;
  if (pipe != kPipe) dup2(pipe, kPipe);
  const int null = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < kPipe; ++fd) dup2(null, fd);
  closefrom(kPipe + 1);
}

[[noreturn]] void Keep(int pipe, const std::string& directory) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  setsid();
  prctl(PR_SET_NAME, "ronde-keeper");
  DropEverythingBut(pipe);
  if (chdir("/") != 0) _exit(1);

  std::set<pid_t> groups;
  Record record = {};
  while (Receive(3, &record)) {
    switch (record.kind) {
      case Kind::kRegister:
        groups.insert(record.group);
        break;
      case Kind::kForget:
        groups.erase(record.group);
        break;
      case Kind::kGoodbye:
        _exit(0);
    }
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
  RemoveDirectory(directory);
  _exit(0);
}

}  // namespace

Result<std::unique_ptr<Keeper>> Keeper::Start(const std::string& directory) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Status::FromErrno("pipe");
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) return Status::FromErrno("fork");
  if (pid == 0) Keep(reader.get(), directory);
  return std::unique_ptr<Keeper>(new Keeper(pid, std::move(writer)));
}

Keeper::~Keeper() {
  Send(pipe_.get(), {Kind::kGoodbye, 0});
  pipe_.Reset();
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Keeper::Forget(pid_t group) {
  Send(pipe_.get(), {Kind::kForget, group});
}

void Keeper::Register(int fd, pid_t group) {
  Send(fd, {Kind::kRegister, group});
}

}  // namespace ronde::launch
