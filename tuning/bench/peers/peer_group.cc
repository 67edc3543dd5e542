#include "tuning/bench/peers/peer_group.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

#include <fmt/format.h>

#include "core/base/clock.h"
#include "tuning/bench/statistics.h"

namespace ronde::bench {
namespace {

constexpr int64_t kStartTimeoutNs = 60 * kNsPerS;
constexpr int64_t kReplyTimeoutNs = 300 * kNsPerS;
constexpr int kPollMs = 50;

Result<int> Listen(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Status::InvalidArgument(fmt::format("socket path '{}' is too long", path));
  }
  path.copy(address.sun_path, path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return Status::FromErrno("socket");
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(fd, 64) != 0) {
    const Status status = Status::FromErrno(path);
    close(fd);
    return status;
  }
  return fd;
}

// Runs in the child, between fork and exec.
[[noreturn]] void Exec(const PeerProcess& process) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int null = open("/dev/null", O_RDONLY);
  if (null >= 0) dup2(null, STDIN_FILENO);
  for (const std::string& variable : process.environment) {
    putenv(const_cast<char*>(variable.c_str()));
  }
  std::vector<char*> argv;
  for (const std::string& argument : process.command) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  std::perror(argv[0]);
  _exit(127);
}

// True once `pid` has ended; waits up to `timeout_ns`.
bool AwaitExit(pid_t pid, int64_t timeout_ns) {
  const int64_t deadline_ns = NowNs() + timeout_ns;
  while (waitpid(pid, nullptr, WNOHANG) == 0) {
    if (NowNs() >= deadline_ns) return false;
    usleep(5'000);
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<PeerGroup>> PeerGroup::Start(const std::string& name,
                                                    const std::vector<PeerProcess>& processes,
                                                    int ranks, const std::string& socket_path,
                                                    const std::atomic<bool>* interrupted) {
  const Result<int> listener = Listen(socket_path);
  if (!listener.ok()) return listener.status();
  std::unique_ptr<PeerGroup> group(new PeerGroup(name, interrupted));
  const Status status = group->Connect(processes, ranks, *listener);
  close(*listener);
  unlink(socket_path.c_str());
  if (!status.ok()) return status;
  return group;
}

Status PeerGroup::Connect(const std::vector<PeerProcess>& processes, int ranks, int listener) {
  for (const PeerProcess& process : processes) {
    const pid_t pid = fork();
    if (pid < 0) return Status::FromErrno("fork");
    if (pid == 0) Exec(process);
    pids_.push_back(pid);
  }
  connections_.assign(static_cast<size_t>(ranks), -1);
  const int64_t deadline_ns = NowNs() + kStartTimeoutNs;
  for (int i = 0; i < ranks; ++i) RONDE_RETURN_IF_ERROR(AcceptRank(listener, deadline_ns));
  return Status::Ok();
}

Status PeerGroup::AcceptRank(int listener, int64_t deadline_ns) {
  RONDE_RETURN_IF_ERROR(AwaitReadable(listener, deadline_ns));
  const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return Status::FromErrno("accept");
  Hello hello;
  const bool complete =
      recv(fd, &hello, sizeof hello, MSG_WAITALL) == static_cast<ssize_t>(sizeof hello);
  const auto rank = static_cast<size_t>(hello.rank);
  if (!complete || static_cast<size_t>(hello.size) != connections_.size() ||
      rank >= connections_.size() || connections_[rank] >= 0) {
    close(fd);
    return Status::Internal(fmt::format("{}: a driver introduced itself as rank {} of {}", name_,
                                        hello.rank, hello.size));
  }
  connections_[rank] = fd;
  version_ = hello.version;
  return Status::Ok();
}

PeerGroup::~PeerGroup() {
  Command quit;
  for (const int fd : connections_) {
    if (fd < 0) continue;
    send(fd, &quit, sizeof quit, MSG_NOSIGNAL);
    close(fd);
  }
  // Drivers end by themselves: at once when idle, after their block otherwise.
  const int64_t patience_ns = interrupted_->load() ? 0 : 5 * kNsPerS;
  for (const pid_t pid : pids_) {
    if (AwaitExit(pid, patience_ns)) continue;
    kill(pid, SIGTERM);  // mpirun ends its ranks
    if (AwaitExit(pid, 3 * kNsPerS)) continue;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

Status PeerGroup::Prepare(int64_t bytes) {
  Command command;
  command.kind = CommandKind::kPrepare;
  command.bytes = bytes;
  RONDE_RETURN_IF_ERROR(SendAll(command));
  return ReceiveAll().status();
}

Result<std::vector<double>> PeerGroup::Run(Buffers buffers, const BlockPlan& plan) {
  Command command;
  command.kind = CommandKind::kRun;
  command.buffers = buffers;
  command.plan = plan;
  RONDE_RETURN_IF_ERROR(SendAll(command));
  const Result<std::vector<std::vector<int64_t>>> stamps = ReceiveAll();
  if (!stamps.ok()) return stamps.status();
  std::vector<double> times = GroupTimes(*stamps);
  for (double& time : times) time /= static_cast<double>(plan.inner);
  return times;
}

Status PeerGroup::SendAll(const Command& command) {
  for (const int fd : connections_) {
    if (send(fd, &command, sizeof command, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof command)) {
      return Status::FromErrno(fmt::format("{}: sending a command", name_));
    }
  }
  return Status::Ok();
}

Result<std::vector<std::vector<int64_t>>> PeerGroup::ReceiveAll() {
  std::vector<std::vector<int64_t>> all;
  for (size_t rank = 0; rank < connections_.size(); ++rank) {
    Reply reply;
    RONDE_RETURN_IF_ERROR(ReadAll(rank, &reply, sizeof reply));
    std::vector<int64_t> stamps(static_cast<size_t>(reply.stamps));
    RONDE_RETURN_IF_ERROR(ReadAll(rank, stamps.data(), stamps.size() * sizeof(int64_t)));
    if (reply.error[0] != '\0') return Status::Internal(fmt::format("{}: {}", name_, reply.error));
    all.push_back(std::move(stamps));
  }
  return all;
}

Status PeerGroup::ReadAll(size_t rank, void* data, size_t bytes) {
  const int fd = connections_[rank];
  const int64_t deadline_ns = NowNs() + kReplyTimeoutNs;
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    RONDE_RETURN_IF_ERROR(AwaitReadable(fd, deadline_ns));
    const ssize_t got = read(fd, at, bytes);
    if (got <= 0) {
      return Status::Internal(fmt::format("{}: rank {} has gone away", name_, rank));
    }
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return Status::Ok();
}

Status PeerGroup::AwaitReadable(int fd, int64_t deadline_ns) {
  while (true) {
    if (interrupted_->load()) return Status::Aborted("interrupted");
    pollfd entry = {fd, POLLIN, 0};
    if (poll(&entry, 1, kPollMs) > 0) return Status::Ok();
    RONDE_RETURN_IF_ERROR(CheckProcesses());
    if (NowNs() >= deadline_ns) {
      return Status::Timeout(fmt::format("{}: no answer from its processes", name_));
    }
  }
}

Status PeerGroup::CheckProcesses() {
  for (auto it = pids_.begin(); it != pids_.end(); ++it) {
    int wait_status = 0;
    if (waitpid(*it, &wait_status, WNOHANG) != *it) continue;
    pids_.erase(it);
    return Status::Internal(
        WIFSIGNALED(wait_status)
            ? fmt::format("{}: a process was ended by signal {}", name_, WTERMSIG(wait_status))
            : fmt::format("{}: a process ended with exit status {}", name_,
                          WEXITSTATUS(wait_status)));
  }
  return Status::Ok();
}

}  // namespace ronde::bench
