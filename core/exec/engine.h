// Engine: the state machine that moves everything of one rank forward.
//
// It is stepped by whoever holds the token: the progress thread, which sleeps in epoll and holds
// nothing while it sleeps, or a user's thread that waits. A small blocking operation with nothing
// else in flight runs wholly on its caller's thread, without a system call.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "core/control/abort.h"
#include "core/control/doorbell.h"
#include "core/control/rendezvous.h"
#include "core/exec/absence.h"
#include "core/exec/arena_set.h"
#include "core/exec/backend.h"
#include "core/exec/lane.h"
#include "core/exec/named_queue.h"
#include "core/exec/negotiator.h"
#include "core/exec/token.h"
#include "core/exec/work_state.h"
#include "ronde/config.h"

namespace ronde {

// Owned by a Runtime; outlived by nothing that uses it. Public methods may be called from any
// thread, without the token.
class Engine {
 public:
  Engine(const Config& config, Membership members, BackendRegistry* backends, RuleTable rules,
         BackendContext context, Logger logger);
  ~Engine();

  Status Start();
  // Completes everything with kAborted, ends the progress thread. Idempotent.
  void Stop();

  // Claims a name until its work completes; false when it is in flight already.
  bool ReserveName(const std::string& name);
  // Takes over one reference. Starts the work if that needs no waiting.
  void Submit(WorkState* work);
  // Submit and Wait in one hold of the token.
  Status Run(WorkState* work, const WaitOptions& options);
  // The same for a small valid request with nothing else in flight, wholly on this thread and
  // without a work; false: not done. When it had to be posted before that showed, `adopted` is the
  // work that carries it on (with a reference for the caller).
  bool RunInline(const Request& request, WorkState** adopted);
  Status Wait(WorkState* work, const WaitOptions& options);
  // One bounded step, if the token is free.
  void Poll();

  // Slow path: proposes and waits for every rank's decision.
  Result<DecisionWithFds> Agree(const wire::Proposal& proposal, const std::vector<int>& fds,
                                const WaitOptions& options);
  void AddSet(ArenaSet* set);
  void RemoveSet(ArenaSet* set);

  // Ends the group (first error wins) and wakes everybody.
  void RaiseAbort(int culprit, const Status& error);
  Status health() const { return abort_.status(); }

  const Board& board() const { return context_.board; }
  const BackendContext& context() const { return context_; }
  Backend* default_backend() const { return backend_; }
  WorkPool* pool() const { return pool_.get(); }
  const Doorbell& doorbell() const { return doorbell_; }
  bool overlap() const { return overlap_; }

  int64_t works() const { return works_.load(std::memory_order_relaxed); }
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  int64_t messages();
  int64_t capped_sleeps() const { return capped_sleeps_.load(std::memory_order_relaxed); }
  int64_t rounds() const { return rounds_.load(std::memory_order_relaxed); }

 private:
  // Holding the token.
  bool Step() RONDE_REQUIRES(token_);
  bool DrainSubmissions() RONDE_REQUIRES(token_);
  void Route(WorkState* work) RONDE_REQUIRES(token_);
  void Complete(WorkState* work, const Status& status) RONDE_REQUIRES(token_);
  void FailAll(const Status& error) RONDE_REQUIRES(token_);
  bool Hot() const RONDE_REQUIRES(token_);
  bool Pending() const RONDE_REQUIRES(token_);
  void CheckPeers(int64_t now_ns) RONDE_REQUIRES(token_);

  void Acquired() RONDE_REQUIRES(token_);
  void Release() RONDE_RELEASE(token_);
  // The last step of Release, and all of it for those who only looked at something.
  void Unlock(bool more) RONDE_RELEASE(token_);
  // Is something there that wakes the progress thread?
  bool Woken(int timeout_ms) const;
  // After a nap that its cap ended, and before Acquired: was there something to do, and nobody
  // rang? This rank still counts as asleep, so whoever has published it must ring, now or soon.
  void CheckNap() RONDE_REQUIRES(token_);
  // Steps until the work is done, the budget since the last progress is used, or 50 ms have passed.
  void Drive(const WorkState* work, int64_t deadline_ns) RONDE_REQUIRES(token_);
  void Pause() const;
  int64_t BudgetNs() const;

  void ProgressLoop();
  // The progress thread: sleeps until something happens, then steps while there is work.
  void Progress(int timeout_ms);
  int EpollTimeoutMs();
  // After a group error, once: nothing more happens, and the process may not live to its Shutdown.
  void SaveRecording();

  const Config config_;
  const BackendContext context_;
  const RuleTable rules_;
  const Logger logger_;
  Backend* const backend_;
  const std::shared_ptr<WorkPool> pool_;
  Doorbell doorbell_;
  GroupAbort abort_;
  bool overlap_ = false;

  Token token_;
  std::unique_ptr<Lane> lanes_[kNumLanes] RONDE_GUARDED_BY(token_);
  std::unique_ptr<NamedQueue> named_ RONDE_GUARDED_BY(token_);
  std::vector<ArenaSet*> sets_ RONDE_GUARDED_BY(token_);
  Absence absence_ RONDE_GUARDED_BY(token_);
  Negotiator negotiator_ RONDE_GUARDED_BY(token_);
  // Callbacks of works that completed while the token was held; run after its release.
  std::vector<std::pair<std::function<void(const Status&)>, Status>> callbacks_
      RONDE_GUARDED_BY(token_);
  uint64_t steps_ RONDE_GUARDED_BY(token_) = 0;
  uint64_t idle_steps_ RONDE_GUARDED_BY(token_) = 0;
  bool stopped_ RONDE_GUARDED_BY(token_) = false;
  Doze dozing_ RONDE_GUARDED_BY(token_) = Doze::kAsleep;

  std::atomic<WorkState*> submitted_{nullptr};  // newest first
  std::atomic<int> waiters_{0};                 // user threads in Wait
  std::atomic<int64_t> works_{0};
  std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> capped_sleeps_{0};
  std::atomic<int64_t> rounds_{0};

  std::mutex names_mutex_;
  std::unordered_set<std::string> names_;  // in flight

  UniqueFd epoll_;
  std::atomic<bool> stop_{false};
  bool recording_saved_ = false;  // the progress thread's
  std::thread progress_;
};

}  // namespace ronde
