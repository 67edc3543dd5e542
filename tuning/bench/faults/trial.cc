#include "tuning/bench/faults/trial.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "core/base/clock.h"
#include "ronde/runtime.h"
#include "tuning/bench/operation.h"

namespace ronde::bench {
namespace {

constexpr int64_t kLoadBytes = 16 << 20;
constexpr int64_t kReadyTimeoutNs = 60 * kNsPerS;
constexpr int64_t kWitnessTimeoutNs = 20 * kNsPerS;
constexpr int kCallsBeforeReady = 5;

// What a rank writes into its pipe: once at work, and, the survivors, when they know.
struct Message {
  int64_t now_ns = 0;
  int32_t child = 0;  // process that the victim forked
  char text[244] = {};
};

struct RankProcess {
  pid_t pid = -1;
  int pipe = -1;  // reading end
};

// In the forked processes.

void Say(int pipe, int64_t now_ns, int32_t child, const std::string& text) {
  Message message;
  message.now_ns = now_ns;
  message.child = child;
  std::snprintf(message.text, sizeof message.text, "%s", text.c_str());
  if (write(pipe, &message, sizeof message) != static_cast<ssize_t>(sizeof message)) _exit(3);
}

void HoldMemory(int64_t bytes) {
  void* memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) _exit(4);
  std::memset(memory, 1, static_cast<size_t>(bytes));
}

int32_t ForkIdleChild() {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, 0);
  alarm(120);  // if nobody ends it
  while (true) pause();
}

// What a rank calls over and over. Lives in one rank's process.
class Task {
 public:
  Task(Runtime* runtime, Load load) {
    const int64_t bytes = load == Load::kPrivate || load == Load::kArena ? kLoadBytes : 8;
    const OperationSpec spec = {
        OpKind::kAllreduce, DType::kFloat32, ReduceOp::kSum,
        SizeOperation(OpKind::kAllreduce, bytes, sizeof(float), runtime->size())};
    if (load == Load::kArena) {
      Result<std::unique_ptr<ArenaOperation>> arena = ArenaOperation::Create(runtime, spec);
      if (arena.ok()) {
        operation_ = std::move(arena).value();
      } else {
        status_ = arena.status();
      }
    } else {
      operation_ = std::make_unique<PrivateOperation>(runtime, spec);
    }
  }

  Status Call() { return status_.ok() ? operation_->Run(calls_++) : status_; }

 private:
  Status status_;
  std::unique_ptr<Operation> operation_;
  int64_t calls_ = 0;
};

std::string Verdict(const Status& first, const Status& later, int victim) {
  const std::string name = fmt::format("rank {}", victim);
  for (const Status& status : {first, later}) {
    if (status.code() != Code::kPeerLost || status.message().find(name) == std::string_view::npos) {
      return fmt::format("returned '{}' instead of PeerLost naming {}", status.ToString(), name);
    }
  }
  return "";
}

[[noreturn]] void RunRank(const TrialOptions& options, const std::string& directory, int rank,
                          int pipe) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Config config;
  config.rank = config.local_rank = rank;
  config.size = config.local_size = options.ranks;
  config.rendezvous = directory + "/rendezvous";
  config.job = directory;
  Result<std::unique_ptr<Runtime>> runtime = Open(config);
  if (!runtime.ok()) {
    fmt::print(stderr, "rank {}: {}\n", rank, runtime.status().ToString());
    _exit(5);
  }
  const bool is_victim = rank == options.victim;
  if (is_victim && options.burden == Burden::kResident) HoldMemory(options.resident_bytes);
  Task task(runtime->get(), options.load);
  Status status;
  for (int i = 0; i < kCallsBeforeReady && status.ok(); ++i) status = task.Call();
  const bool forks = is_victim && options.burden == Burden::kForkedChild;
  Say(pipe, NowNs(), forks ? ForkIdleChild() : 0, status.ok() ? "" : status.ToString());
  if (is_victim && options.load == Load::kWaiting) {
    while (true) pause();
  }
  while (status.ok()) status = task.Call();
  const int64_t returned_ns = NowNs();
  Say(pipe, returned_ns, 0, Verdict(status, task.Call(), options.victim));
  _exit(0);
}

// The parent's side; ends every process that it started.
class Trial {
 public:
  explicit Trial(const TrialOptions& options) : options_(options) {}
  ~Trial() {
    if (child_ > 0) kill(child_, SIGKILL);
    for (const RankProcess& rank : ranks_) {
      kill(rank.pid, SIGKILL);
      waitpid(rank.pid, nullptr, 0);
      close(rank.pipe);
    }
    std::error_code ignored;
    if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
  }

  Result<std::vector<Witness>> Run() {
    RONDE_RETURN_IF_ERROR(Start());
    for (int rank = 0; rank < options_.ranks; ++rank) {
      const Result<Message> ready = Receive(rank, kReadyTimeoutNs);
      if (!ready.ok()) return ready.status();
      if (ready->text[0] != '\0') return Status::Internal(ready->text);
      if (ready->child != 0) child_ = ready->child;
    }
    usleep(static_cast<useconds_t>(options_.delay_us));
    const int64_t killed_ns = NowNs();
    kill(ranks_[static_cast<size_t>(options_.victim)].pid, SIGKILL);
    std::vector<Witness> witnesses;
    for (int rank = 0; rank < options_.ranks; ++rank) {
      if (rank == options_.victim) continue;
      const Result<Message> message = Receive(rank, kWitnessTimeoutNs);
      Witness witness;
      witness.rank = rank;
      witness.after_ns = (message.ok() ? message->now_ns : NowNs()) - killed_ns;
      witness.verdict = message.ok() ? message->text : message.status().ToString();
      witnesses.push_back(std::move(witness));
    }
    return witnesses;
  }

 private:
  Status Start() {
    std::string name = (std::filesystem::temp_directory_path() / "ronde-faults-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) return Status::FromErrno(name);
    directory_ = name;
    std::fflush(nullptr);
    for (int rank = 0; rank < options_.ranks; ++rank) {
      int ends[2];
      if (pipe(ends) != 0) return Status::FromErrno("pipe");
      const pid_t pid = fork();
      if (pid == 0) {
        close(ends[0]);
        RunRank(options_, directory_, rank, ends[1]);
      }
      close(ends[1]);
      ranks_.push_back({pid, ends[0]});
      if (pid < 0) return Status::FromErrno("fork");
    }
    return Status::Ok();
  }

  Result<Message> Receive(int rank, int64_t timeout_ns) {
    const RankProcess& process = ranks_[static_cast<size_t>(rank)];
    pollfd entry = {process.pipe, POLLIN, 0};
    Message message;
    if (poll(&entry, 1, static_cast<int>(timeout_ns / kNsPerMs)) <= 0) {
      return Status::Timeout(
          fmt::format("rank {} said nothing for {} s", rank, timeout_ns / kNsPerS));
    }
    if (read(process.pipe, &message, sizeof message) != static_cast<ssize_t>(sizeof message)) {
      return Status::Internal(fmt::format("rank {} ended without a word", rank));
    }
    return message;
  }

  const TrialOptions options_;
  std::string directory_;
  std::vector<RankProcess> ranks_;
  pid_t child_ = -1;
};

}  // namespace

std::string_view LoadName(Load load) {
  switch (load) {
    case Load::kSmall:
      return "small";
    case Load::kPrivate:
      return "private";
    case Load::kArena:
      return "arena";
    case Load::kWaiting:
      return "waiting";
  }
  return "?";
}

Result<std::vector<Witness>> RunTrial(const TrialOptions& options) {
  return Trial(options).Run();
}

}  // namespace ronde::bench
