#include "core/launch/job.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/launch/child.h"
#include "core/launch/keeper.h"
#include "core/launch/private_directory.h"
#include "core/launch/relay.h"
#include "core/launch/signals.h"
#include "core/launch/supervisor.h"

namespace ronde::launch {
namespace {

// A descriptor opened later must not become somebody's stdout.
void EnsureStandardDescriptors() {
  int fd = 0;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

// Two pipes, two files and a process descriptor per rank. Returns the limit as it was.
rlimit RaiseFileLimit() {
  rlimit original = {};
  getrlimit(RLIMIT_NOFILE, &original);
  rlimit raised = original;
  raised.rlim_cur = raised.rlim_max;
  setrlimit(RLIMIT_NOFILE, &raised);
  return original;
}

Result<std::string> RandomJobId() {
  std::array<unsigned char, 16> bytes;
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return Status::FromErrno("getrandom");
  }
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

// Free now; whoever uses it (torch's store, on rank 0) binds it later.
Result<int> FreePort() {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!fd.valid() || bind(fd.get(), generic, size) != 0 ||
      getsockname(fd.get(), generic, &size) != 0) {
    return Status::FromErrno("cannot find a free port on 127.0.0.1");
  }
  return static_cast<int>(ntohs(address.sin_port));
}

Result<JobIdentity> MakeIdentity(int size, const PrivateDirectory& directory) {
  JobIdentity identity;
  identity.size = size;
  identity.rendezvous = directory.socket_path();
  Result<std::string> job = RandomJobId();
  RONDE_RETURN_IF_ERROR(job.status());
  identity.job = *std::move(job);
  const Result<int> port = FreePort();
  RONDE_RETURN_IF_ERROR(port.status());
  identity.master_port = *port;
  return identity;
}

Status Validate(const JobOptions& options) {
  if (options.command.empty()) return Status::InvalidArgument("no command to run");
  if (options.ranks < 1 || options.ranks > kMaxRanks) {
    return Status::InvalidArgument(
        fmt::format("{} ranks are not allowed: must be 1 to {}", options.ranks, kMaxRanks));
  }
  if (options.threads < 0 || options.grace_ms < 0) {
    return Status::InvalidArgument("threads and grace period must not be negative");
  }
  return Status::Ok();
}

std::string Plural(int count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// The three steps of a job: prepare (nothing runs yet), start every rank, supervise to the end.
// Owned by RunJob; one thread.
class Job {
 public:
  explicit Job(const JobOptions& options) : options_(options) {}

  int Run();

 private:
  Status Prepare();
  void SayThreads(int cores, const Environment& base);
  Status StartRanks(int* exec_errno);

  const JobOptions& options_;
  rlimit file_limit_ = {};
  Topology topology_;
  std::vector<std::vector<int>> cpus_;
  int threads_ = 1;
  Environment base_;
  JobIdentity identity_;
  // In order of construction; the folder goes last.
  std::optional<PrivateDirectory> directory_;
  std::optional<SignalReader> signals_;
  std::unique_ptr<Relay> relay_;
  std::unique_ptr<Keeper> keeper_;
  std::unique_ptr<Supervisor> supervisor_;
};

Status Job::Prepare() {
  EnsureStandardDescriptors();
  file_limit_ = RaiseFileLimit();
  topology_ = ReadTopology();
  Result<std::vector<std::vector<int>>> plan =
      PlanBinding(options_.bind, options_.ranks, topology_);
  RONDE_RETURN_IF_ERROR(plan.status());
  cpus_ = *std::move(plan);

  Result<SignalReader> signals = SignalReader::Open();
  RONDE_RETURN_IF_ERROR(signals.status());
  signals_.emplace(*std::move(signals));
  Result<PrivateDirectory> directory = PrivateDirectory::Create();
  RONDE_RETURN_IF_ERROR(directory.status());
  directory_.emplace(*std::move(directory));
  Result<JobIdentity> identity = MakeIdentity(options_.ranks, *directory_);
  RONDE_RETURN_IF_ERROR(identity.status());
  identity_ = *std::move(identity);

  relay_ = std::make_unique<Relay>(
      RelayOptions{options_.ranks, options_.prefix && options_.ranks > 1, options_.quiet});
  RONDE_RETURN_IF_ERROR(relay_->Open(options_.output_dir));
  Result<std::unique_ptr<Keeper>> keeper = Keeper::Start(directory_->path());
  RONDE_RETURN_IF_ERROR(keeper.status());
  keeper_ = *std::move(keeper);
  // Orphaned grandchildren become ours, so that we see when a rank's group has emptied.
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return Status::FromErrno("prctl");
  return Status::Ok();
}

void Job::SayThreads(int cores, const Environment& base) {
  if (options_.ranks > 1 && options_.threads == 0 && LeavesThreadsToUs(base)) {
    relay_->Say(fmt::format("ronde: {} on {}, {} each (set OMP_NUM_THREADS or --threads to change)",
                            Plural(options_.ranks, "rank"), Plural(cores, "core"),
                            Plural(threads_, "thread")));
  }
  if (options_.verbose && options_.ranks > cores) {
    relay_->Say(fmt::format("ronde: more ranks ({}) than usable cores ({}): they take turns",
                            options_.ranks, cores));
  }
  if (options_.verbose) {
    relay_->Say(
        fmt::format("ronde: job {}, rendezvous at {}", identity_.job, identity_.rendezvous));
  }
}

Status Job::StartRanks(int* exec_errno) {
  ChildOptions child;
  child.command = &options_.command;
  child.keeper_fd = keeper_->fd();
  child.signals = &*signals_;
  child.file_limit = file_limit_;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    child.environment = RankEnvironment(base_, identity_, rank, threads_, options_.threads != 0);
    child.cpus = cpus_[static_cast<size_t>(rank)];
    child.inherit_stdin = rank == 0;
    Result<Child> started = SpawnChild(child, exec_errno);
    if (!started.ok()) {
      if (*exec_errno != 0) return started.status();
      return Status::Internal(fmt::format("cannot start rank {} of {}: {}", rank, options_.ranks,
                                          started.status().message()));
    }
    if (options_.verbose) {
      relay_->Say(fmt::format("ronde: rank {} is process {}", rank, started->pid));
    }
    RONDE_RETURN_IF_ERROR(supervisor_->Add(*std::move(started)));
  }
  return Status::Ok();
}

int Job::Run() {
  int exec_errno = 0;
  Status status = Validate(options_);
  if (status.ok()) status = Prepare();
  if (status.ok()) {
    const int cores = UsableCores(topology_);
    threads_ = options_.threads != 0 ? options_.threads : std::max(1, cores / options_.ranks);
    base_ = CurrentEnvironment();
    supervisor_ =
        std::make_unique<Supervisor>(SupervisorOptions{options_.grace_ms, options_.verbose},
                                     &*signals_, relay_.get(), keeper_.get());
    status = supervisor_->Open();
    if (status.ok()) status = StartRanks(&exec_errno);
    // After the first rank runs: a command that does not exist gets one line, not two.
    if (status.ok()) {
      SayThreads(cores, base_);
      return supervisor_->Run();
    }
    supervisor_->KillAll();
  }
  if (relay_ == nullptr) relay_ = std::make_unique<Relay>(RelayOptions{});
  relay_->Say(fmt::format("ronde run: {}", status.message()));
  relay_->DrainConsoles(signals_ ? &*signals_ : nullptr, -1);
  if (exec_errno == 0) {
    return status.code() == Code::kInvalidArgument ? kExitUsage : kExitCannotStart;
  }
  return exec_errno == ENOENT ? kExitNotFound : kExitCannotExecute;
}

}  // namespace

int RunJob(const JobOptions& options) {
  return Job(options).Run();
}

}  // namespace ronde::launch
