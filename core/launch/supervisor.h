// Supervisor: watches the ranks of a job and ends them together.
#pragma once

#include <cstdint>
#include <vector>

#include "core/launch/child.h"
#include "core/launch/keeper.h"
#include "core/launch/relay.h"
#include "core/launch/signals.h"
#include "core/launch/summary.h"

namespace ronde::launch {

struct SupervisorOptions {
  int64_t grace_ms = 2000;
  bool verbose = false;
};

// Owned by the running job, like everything that it borrows; one thread. The rules are those of
// RunJob.
class Supervisor {
 public:
  Supervisor(const SupervisorOptions& options, SignalReader* signals, Relay* relay, Keeper* keeper);

  // Needed before Add.
  Status Open();
  // The next rank has started.
  Status Add(Child child);
  // Runs the job to its end, prints the summary, returns the exit status.
  int Run();
  // Kills what was added and waits for it: the job could not be started.
  void KillAll();

 private:
  struct Rank {
    pid_t group = -1;  // also the number of the rank's first process
    UniqueFd pidfd;
    bool running = true;      // that first process
    bool group_gone = false;  // no process is left in the group
    bool dying_at_first_failure = false;
  };
  // How far the end of the job has come. Each stage has a deadline that starts the next one.
  enum class Ending { kNo, kGrace, kTerminating, kKilling };

  bool AllRanksEnded() const { return running_ == 0; }
  bool AllGroupsGone() const;
  int PollTimeoutMs(int64_t now_ns) const;
  void HandleSignals(int64_t now_ns);
  void PassOn(int signal, int64_t now_ns);
  void StopAndContinue();
  void HandleExits();
  void HandleExit(size_t rank);
  void JudgeFailure(size_t rank);
  void ReapOrphans();
  void NoticeEmptyGroups(int64_t now_ns);
  void AdvanceEnding(int64_t now_ns);
  void SignalGroups(int signal);

  const SupervisorOptions options_;
  SignalReader* const signals_;
  Relay* const relay_;
  Keeper* const keeper_;
  UniqueFd exits_;  // epoll over the ranks' pidfds: hands them out in the order of their exits
  std::vector<Rank> ranks_;
  int running_ = 0;
  JobEnd end_;
  Ending ending_ = Ending::kNo;
  int64_t ending_deadline_ns_ = 0;
  int interrupts_ = 0;  // SIGINTs so far
};

}  // namespace ronde::launch
