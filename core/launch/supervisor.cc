#include "core/launch/supervisor.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/clock.h"
#include "core/base/log.h"

namespace ronde::launch {
namespace {

// What ranks leave behind in their groups (a pager, a `tee`) may finish within this time.
constexpr int64_t kLeftoverNs = 500 * kNsPerMs;
// Nothing tells us when a process that is not our child leaves a group.
constexpr int kGroupCheckMs = 20;

// On its way out, or dead but not yet waited for.
bool IsDying(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  // After the program's name in parentheses: state, five numbers, and the kernel's flags.
  std::istringstream rest(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string skipped;
  for (int i = 0; i < 6; ++i) rest >> skipped;
  uint32_t flags = 0;
  rest >> flags;
  constexpr uint32_t kExiting = 0x4;        // PF_EXITING
  constexpr uint32_t kDumpingCore = 0x200;  // PF_DUMPCORE
  return (flags & (kExiting | kDumpingCore)) != 0;
}

}  // namespace

Supervisor::Supervisor(const SupervisorOptions& options, SignalReader* signals, Relay* relay,
                       Keeper* keeper)
    : options_(options), signals_(signals), relay_(relay), keeper_(keeper) {
  end_.started_ns = NowNs();
}

Status Supervisor::Open() {
  exits_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  return exits_.valid() ? Status::Ok() : Status::FromErrno("epoll_create1");
}

Status Supervisor::Add(Child child) {
  const int rank = static_cast<int>(ranks_.size());
  Rank added;
  added.group = child.pid;
  added.pidfd = std::move(child.pidfd);
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u32 = static_cast<uint32_t>(rank);
  const bool watched = epoll_ctl(exits_.get(), EPOLL_CTL_ADD, added.pidfd.get(), &event) == 0;
  ranks_.push_back(std::move(added));
  end_.ranks.emplace_back();
  ++running_;
  if (!watched) return Status::FromErrno("epoll_ctl");
  return relay_->Attach(rank, std::move(child.out), std::move(child.err));
}

void Supervisor::KillAll() {
  SignalGroups(SIGKILL);
  for (const Rank& rank : ranks_) waitpid(rank.group, nullptr, 0);
}

int Supervisor::Run() {
  std::vector<pollfd> fds;
  while (!AllGroupsGone()) {
    fds.assign({{signals_->fd(), POLLIN, 0}, {exits_.get(), POLLIN, 0}});
    relay_->AddPollFds(&fds);
    poll(fds.data(), fds.size(), PollTimeoutMs(NowNs()));
    const int64_t now_ns = NowNs();
    HandleSignals(now_ns);
    HandleExits();
    NoticeEmptyGroups(now_ns);
    AdvanceEnding(now_ns);
    relay_->Step(now_ns);
  }
  relay_->FinishStreams(NowNs());
  const int status = ExitStatus(end_);
  if (end_.first_failed >= 0) end_.last_stderr = relay_->last_stderr(end_.first_failed);
  if (status != 0 || options_.verbose) {
    for (const std::string& line : Summarize(end_)) relay_->Say(line);
  }
  // An interrupted job does not wait for a pager that nobody scrolls.
  relay_->DrainConsoles(signals_, end_.interrupt_signal != 0 ? 500 : -1);
  return status;
}

bool Supervisor::AllGroupsGone() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.group_gone; });
}

int Supervisor::PollTimeoutMs(int64_t now_ns) const {
  int64_t next_ns = relay_->next_deadline_ns();
  if (ending_deadline_ns_ != 0 && (next_ns == 0 || ending_deadline_ns_ < next_ns)) {
    next_ns = ending_deadline_ns_;
  }
  if (AllRanksEnded()) return kGroupCheckMs;
  if (next_ns == 0) return -1;
  // Rounded up: waking before the deadline would spin until it.
  return static_cast<int>(std::max<int64_t>(0, (next_ns - now_ns + kNsPerMs - 1) / kNsPerMs));
}

void Supervisor::HandleSignals(int64_t now_ns) {
  while (const std::optional<int> signal = signals_->Next()) {
    // SIGPIPE: a reader of ours has gone, which the Sink notices; SIGCHLD: see ReapOrphans.
    if (*signal == SIGPIPE || *signal == SIGCHLD) continue;
    if (*signal == SIGTSTP) {
      StopAndContinue();
    } else {
      PassOn(*signal, now_ns);
    }
  }
}

void Supervisor::PassOn(int signal, int64_t now_ns) {
  if (IsEndingSignal(signal) && ++interrupts_ > 1) {
    relay_->Say("ronde: interrupted again: killing the ranks");
    ending_ = Ending::kTerminating;
    ending_deadline_ns_ = now_ns;
    return;
  }
  SignalGroups(signal);
  if (!IsEndingSignal(signal)) return;
  if (end_.interrupt_signal == 0) end_.interrupt_signal = signal;
  if (signal == SIGINT) {
    relay_->Say("ronde: interrupted; waiting for the ranks to end (Ctrl-C again kills them)");
  }
}

void Supervisor::StopAndContinue() {
  // Not SIGTSTP: it is ignored in a session without a terminal.
  SignalGroups(SIGSTOP);
  raise(SIGSTOP);
  SignalGroups(SIGCONT);
}

void Supervisor::HandleExits() {
  std::array<epoll_event, 64> ready;
  const int count = epoll_wait(exits_.get(), ready.data(), ready.size(), 0);
  for (int i = 0; i < count; ++i) HandleExit(ready[static_cast<size_t>(i)].data.u32);
  ReapOrphans();
}

void Supervisor::HandleExit(size_t index) {
  Rank& rank = ranks_[index];
  siginfo_t info = {};
  RONDE_CHECK(waitid(P_PID, static_cast<id_t>(rank.group), &info, WEXITED | WNOHANG) == 0);
  if (info.si_pid == 0) return;  // a debugger has it; comes again
  rank.running = false;
  rank.pidfd.Reset();
  --running_;
  RankEnd& end = end_.ranks[index];
  end.at_ns = NowNs();
  end.by_signal = info.si_code != CLD_EXITED;
  end.code = info.si_status;
  end.by_launcher = end.by_signal && !rank.dying_at_first_failure &&
                    ((ending_ == Ending::kTerminating && end.code == SIGTERM) ||
                     (ending_ == Ending::kKilling && end.code == SIGKILL));
  // Ranks that end after the user's signal end because of it, in their own time.
  if (end.failed() && !end.by_launcher && end_.interrupt_signal == 0) JudgeFailure(index);
}

// A process is still being taken apart (88 ms per GiB) when its peers have long noticed, and may
// have exited because of it. So a rank that was already dying when another one's end was seen takes
// precedence over it; one that was killed does so over one that exited.
void Supervisor::JudgeFailure(size_t index) {
  const RankEnd& end = end_.ranks[index];
  if (end_.first_failed >= 0) {
    const auto first = static_cast<size_t>(end_.first_failed);
    const bool exited = !end_.ranks[first].by_signal;
    const bool both_dying = ranks_[first].dying_at_first_failure;
    if (exited && ranks_[index].dying_at_first_failure && (end.by_signal || !both_dying)) {
      end_.first_failed = static_cast<int>(index);
    }
    return;
  }
  end_.first_failed = static_cast<int>(index);
  ending_ = Ending::kGrace;
  ending_deadline_ns_ = end.at_ns + options_.grace_ms * kNsPerMs;
  for (Rank& rank : ranks_) {
    rank.dying_at_first_failure = rank.running && IsDying(rank.group);
  }
}

// Grandchildren whose parents have died. The ranks' own processes are left to HandleExit.
void Supervisor::ReapOrphans() {
  while (true) {
    siginfo_t info = {};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    const pid_t pid = info.si_pid;
    const bool is_rank = std::any_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) {
      return rank.running && rank.group == pid;
    });
    if (is_rank) return;
    if (pid == keeper_->pid()) {
      relay_->Say("ronde: the process that cleans up after a killed launcher was itself killed");
    }
    waitpid(pid, nullptr, WNOHANG);
  }
}

void Supervisor::NoticeEmptyGroups(int64_t now_ns) {
  for (Rank& rank : ranks_) {
    if (rank.running || rank.group_gone) continue;
    // Everything but success means that nobody is left whom we could signal.
    if (kill(-rank.group, 0) == 0) continue;
    rank.group_gone = true;
    keeper_->Forget(rank.group);
  }
  if (!AllRanksEnded() || AllGroupsGone()) return;
  const int64_t deadline_ns = now_ns + kLeftoverNs;
  if (ending_ == Ending::kNo || (ending_ == Ending::kGrace && ending_deadline_ns_ > deadline_ns)) {
    ending_ = Ending::kGrace;
    ending_deadline_ns_ = deadline_ns;
  }
}

void Supervisor::AdvanceEnding(int64_t now_ns) {
  if (ending_deadline_ns_ == 0 || now_ns < ending_deadline_ns_) return;
  switch (ending_) {
    case Ending::kNo:
    case Ending::kKilling:
      ending_deadline_ns_ = 0;
      break;
    case Ending::kGrace:
      SignalGroups(SIGTERM);
      ending_ = Ending::kTerminating;
      ending_deadline_ns_ = now_ns + options_.grace_ms * kNsPerMs;
      break;
    case Ending::kTerminating:
      SignalGroups(SIGKILL);
      ending_ = Ending::kKilling;
      ending_deadline_ns_ = 0;
      break;
  }
}

void Supervisor::SignalGroups(int signal) {
  for (const Rank& rank : ranks_) {
    if (!rank.group_gone) kill(-rank.group, signal);
  }
}

}  // namespace ronde::launch
