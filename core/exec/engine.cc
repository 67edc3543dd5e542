#include "core/exec/engine.h"

#include <sched.h>
#include <sys/epoll.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include <fmt/format.h>

#include "core/base/clock.h"
#include "core/control/watch.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ronde {
namespace {

constexpr int kQuietLooks = 64;  // of a small operation, before it says that it is awake
constexpr int64_t kNapCapNs = 100 * kNsPerMs;   // a waiting thread looks for signals this often
constexpr int64_t kDriveCapNs = 50 * kNsPerMs;  // likewise while it steps
constexpr uint64_t kChannelEvery = 64;          // steps between looks at the sockets
constexpr uint64_t kPeersEvery = 1024;          // idle steps between looks at who is alive
constexpr int kPendingWakeMs = 1000;            // the progress thread's look at deadlines
constexpr int kFlushWakeMs = 1;
constexpr int kRingGraceMs = 250;  // a publisher may be stopped between its store and its ring
// By so much the coordinator, who knows more, times out first.
constexpr int64_t kAnswerGraceNs = 2000 * kNsPerMs;

int64_t DeadlineNs(const WaitOptions& options) {
  const int64_t now = NowNs();
  const bool endless = options.timeout_ms < 0 || options.timeout_ms > (INT64_MAX - now) / kNsPerMs;
  return endless ? INT64_MAX : now + options.timeout_ms * kNsPerMs;
}

}  // namespace

Engine::Engine(const Config& config, Membership members, BackendRegistry* backends, RuleTable rules,
               BackendContext context, Logger logger)
    : config_(config),
      context_([&] {
        context.doorbell = &doorbell_;
        return context;
      }()),
      rules_(std::move(rules)),
      logger_(logger),
      backend_(backends->Find("shm")),
      pool_(std::make_shared<WorkPool>()),
      doorbell_(context.board, context.rank, std::move(members.eventfds)),
      abort_(context.board, context.rank),
      absence_(context.board, config, logger,
               [this](int culprit, const Status& error) { RaiseAbort(culprit, error); }),
      negotiator_(context.board, context.rank, &doorbell_, std::move(members.channels),
                  [this](int culprit, const Status& error) { RaiseAbort(culprit, error); }) {
  switch (config_.overlap) {
    case Overlap::kOn:
      overlap_ = true;
      break;
    case Overlap::kOff:
      break;
    case Overlap::kAuto:
      // A progress thread that reduces while the backward pass computes helps only where it has a
      // core of its own.
      overlap_ = context_.usable_cores >= 2 * config_.local_size;
      break;
  }
}

Engine::~Engine() {
  Stop();
}

Status Engine::Start() {
  if (backend_ == nullptr) return Status::Internal("the shared-memory backend is not linked in");
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return Status::FromErrno("epoll_create1");
  epoll_event bell{};
  bell.events = EPOLLIN;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, doorbell_.own_fd(), &bell) != 0) {
    return Status::FromErrno("epoll_ctl");
  }
  token_.Lock();
  Status status;
  const auto complete = [this](WorkState* work, const Status& s)
                            RONDE_NO_THREAD_SAFETY_ANALYSIS { Complete(work, s); };
  for (int lane = 0; lane < kNumLanes && status.ok(); ++lane) {
    Result<std::unique_ptr<BackendLane>> opened = backend_->OpenLane(context_, lane);
    if (!opened.ok()) {
      status = opened.status();
      break;
    }
    lanes_[lane] =
        std::make_unique<Lane>(lane, context_, &rules_, std::move(*opened), complete,
                               [this](const Status& s) { RaiseAbort(context_.rank, s); });
  }
  if (status.ok()) {
    named_ = std::make_unique<NamedQueue>(
        context_.board, context_.rank, config_.fusion_bytes, lanes_[kNamedLane].get(), &doorbell_,
        [this](const std::string& name,
               const Description& description) RONDE_NO_THREAD_SAFETY_ANALYSIS {
          wire::Proposal proposal;
          proposal.set_subject(wire::SUBJECT_NAME);
          proposal.set_key(name);
          ToWire(description, proposal.mutable_descriptor());
          negotiator_.Propose(
              proposal, {}, [this](DecisionWithFds d) RONDE_NO_THREAD_SAFETY_ANALYSIS {
                named_->OnDecision(d.decision.key(),
                                   Status(static_cast<Code>(d.decision.code()), d.decision.error()),
                                   d.decision.id(), d.decision.once());
              });
        },
        complete);
    named_->on_once_consumed =
        [this](uint32_t id, uint64_t position)
            RONDE_NO_THREAD_SAFETY_ANALYSIS { negotiator_.OnceConsumed(id, position); };
    status = negotiator_.Watch(epoll_.get());
  }
  stopped_ = !status.ok();
  context_.board.doze(context_.rank)
      .store(static_cast<uint32_t>(Doze::kAsleep), std::memory_order_seq_cst);
  token_.Unlock();
  if (!status.ok()) return status;
  // Signals are for the application's threads.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  progress_ = std::thread([this] { ProgressLoop(); });
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  return Status::Ok();
}

void Engine::Stop() {
  token_.Lock();
  Acquired();
  if (!stopped_) {
    stopped_ = true;
    DrainSubmissions();
    FailAll(Status::Aborted(fmt::format("rank {} has shut down", context_.rank)));
    // The sets belong to users, who may destroy them any time from now on.
    sets_.clear();
  }
  Release();
  stop_.store(true, std::memory_order_seq_cst);
  if (progress_.joinable()) {
    doorbell_.RingSelf();
    progress_.join();
  }
  pool_->Close();
}

bool Engine::ReserveName(const std::string& name) {
  const std::lock_guard<std::mutex> lock(names_mutex_);
  return names_.insert(name).second;
}

void Engine::Submit(WorkState* work) {
  WorkState* head = submitted_.load(std::memory_order_relaxed);
  do {
    work->next = head;
  } while (!submitted_.compare_exchange_weak(head, work, std::memory_order_seq_cst));
  // Step once here, so that this rank's readiness is published now and without a thread change.
  // Whoever holds the token instead looks at the queue after its release.
  if (token_.TryLock()) {
    Acquired();
    Step();
    Release();
  }
}

bool Engine::DrainSubmissions() {
  if (submitted_.load(std::memory_order_seq_cst) == nullptr) return false;
  WorkState* newest = submitted_.exchange(nullptr, std::memory_order_seq_cst);
  WorkState* oldest = nullptr;
  while (newest != nullptr) {
    WorkState* const next = newest->next;
    newest->next = oldest;
    oldest = newest;
    newest = next;
  }
  while (oldest != nullptr) {
    WorkState* const next = oldest->next;
    Route(oldest);
    oldest = next;
  }
  return true;
}

void Engine::Route(WorkState* work) {
  if (stopped_) {
    Complete(work, Status::Aborted(fmt::format("rank {} has shut down", context_.rank)));
  } else if (work->name.empty()) {
    lanes_[kUnnamedLane]->Enqueue(work);
  } else {
    named_->Add(work);
  }
}

bool Engine::Step() {
  ++steps_;
  bool busy = DrainSubmissions();
  if (abort_.raised()) {
    FailAll(abort_.status());
    return busy;
  }
  if (stopped_) return busy;
  busy |= lanes_[kUnnamedLane]->Step();
  busy |= named_->Step();
  busy |= lanes_[kNamedLane]->Step();
  // After WANTED was announced the buckets are looked at even if that waiter has left meanwhile:
  // the next one may find the token taken and rely on the announcement.
  const bool wanted = overlap_ || dozing_ == Doze::kWanted || waiters_.load() > 0;
  if (wanted && !sets_.empty()) {
    for (ArenaSet* set : sets_) {
      busy |=
          set->Step([this](WorkState* work, const Status& status) RONDE_NO_THREAD_SAFETY_ANALYSIS {
            rounds_.fetch_add(1, std::memory_order_relaxed);
            Complete(work, status);
          });
    }
  }
  // A look costs a system call; who waits for no answer leaves it to the progress thread.
  if (steps_ % kChannelEvery == 0 && negotiator_.awaiting()) busy |= negotiator_.Poll();
  if (!busy && ++idle_steps_ % kPeersEvery == 0) CheckPeers(NowNs());
  return busy;
}

void Engine::Complete(WorkState* work, const Status& status) {
  works_.fetch_add(1, std::memory_order_relaxed);
  int64_t bytes = 0;
  for (const Tensor& tensor : work->inputs) bytes += tensor.view.size_bytes();
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
  if (!work->name.empty()) {
    const std::lock_guard<std::mutex> lock(names_mutex_);
    names_.erase(work->name);
  }
  context_.recorder->Record(Hop::kDone, work->id, static_cast<uint64_t>(bytes));
  if (work->callback) callbacks_.emplace_back(std::move(work->callback), status);
  work->Finish(status);
  work->Unref();
}

void Engine::FailAll(const Status& error) {
  for (const auto& lane : lanes_) {
    if (lane != nullptr) lane->Fail(error);
  }
  if (named_ != nullptr) named_->Fail(error);
  for (ArenaSet* set : sets_) {
    set->Fail(error, [this](WorkState* work, const Status& status)
                         RONDE_NO_THREAD_SAFETY_ANALYSIS { Complete(work, status); });
  }
  negotiator_.Fail(error);
}

// ---- Token ----

void Engine::Acquired() {
  dozing_ = Doze::kAwake;
  context_.board.doze(context_.rank)
      .store(static_cast<uint32_t>(Doze::kAwake), std::memory_order_seq_cst);
}

void Engine::Release() {
  dozing_ = waiters_.load(std::memory_order_seq_cst) > 0 ? Doze::kWanted : Doze::kAsleep;
  // Announce sleep, then look at everything once more: whoever published before the announcement
  // did not ring.
  context_.board.doze(context_.rank)
      .store(static_cast<uint32_t>(dozing_), std::memory_order_seq_cst);
  const bool more = Step();
  auto callbacks = std::move(callbacks_);
  callbacks_.clear();
  Unlock(more);
  for (auto& [callback, status] : callbacks) callback(status);
}

void Engine::Unlock(bool more) {
  const bool wanted = dozing_ == Doze::kWanted;
  token_.Unlock();
  // What came in while others saw the token held is the progress thread's.
  if (more || submitted_.load(std::memory_order_seq_cst) != nullptr ||
      (!wanted && waiters_.load(std::memory_order_seq_cst) > 0)) {
    doorbell_.RingSelf();
  }
}

bool Engine::Woken(int timeout_ms) const {
  epoll_event event;
  return epoll_wait(epoll_.get(), &event, 1, timeout_ms) > 0;
}

void Engine::CheckNap() {
  if (DrainSubmissions() || Woken(0)) return;
  if (Step() && !Woken(kRingGraceMs)) capped_sleeps_.fetch_add(1, std::memory_order_relaxed);
}

void Engine::Pause() const {
  if (context_.oversubscribed) {
    sched_yield();
    return;
  }
#if defined(__x86_64__)
  _mm_pause();
#endif
}

int64_t Engine::BudgetNs() const {
  return (context_.oversubscribed ? config_.yield_us : config_.spin_us) * kNsPerUs;
}

void Engine::Drive(const WorkState* work, int64_t deadline_ns) {
  int64_t budget_end = 0;
  int64_t cap = 0;
  for (uint64_t spins = 0; !work->done(); ++spins) {
    if (Step()) {
      budget_end = 0;
    } else {
      Pause();
    }
    if (spins % 64 != 63 && !context_.oversubscribed) continue;
    const int64_t now = NowNs();
    if (budget_end == 0) budget_end = now + BudgetNs();
    if (cap == 0) cap = now + kDriveCapNs;
    if (now > budget_end || now > cap || now > deadline_ns) return;
  }
}

Status Engine::Run(WorkState* work, const WaitOptions& options) {
  if (!token_.TryLock()) {
    Work hold(work);
    Submit(work);
    return Wait(work, options);
  }
  const Work hold(work);
  Acquired();
  DrainSubmissions();
  Route(work);
  Drive(work, DeadlineNs(options));
  Release();
  if (work->done()) return work->status;
  return Wait(work, options);
}

bool Engine::RunInline(const Request& request, WorkState** adopted) {
  *adopted = nullptr;
  const bool barrier = request.kind == OpKind::kBarrier;
  if (!request.name.empty()) return false;
  if (!barrier) {
    if (request.kind != OpKind::kAllreduce && request.kind != OpKind::kBroadcast) return false;
    if (request.inputs.size() != 1 || request.outputs.size() != 1) return false;
    const int64_t bytes = request.inputs[0].view.size_bytes();
    if (rules_.Find(request.kind, bytes).schedule != Schedule::kOneShot) return false;
  }
  if (!token_.TryLock()) return false;
  Lane* const lane = lanes_[kUnnamedLane].get();
  if (stopped_ || abort_.raised() || !lane->empty() ||
      submitted_.load(std::memory_order_seq_cst) != nullptr) {
    Unlock(false);
    return false;
  }
  // First a short look at nothing but the cells. The doze stays as it is: to write it twice would
  // cost as much as the operation. Nothing is lost by that, since whoever publishes something else
  // meanwhile rings, and the progress thread then waits for the token.
  lane->PostInline({request.kind,
                    request.op,
                    request.root,
                    request.prescale,
                    request.postscale,
                    request.inputs,
                    request.inputs.size(),
                    {},
                    {}});
  bool posted = lane->AllPosted();
  const int looks = context_.oversubscribed ? 0 : kQuietLooks;
  for (int i = 0; i < looks && !posted; ++i) {
    Pause();
    posted = lane->AllPosted();
  }
  const TensorView output = barrier ? TensorView{} : request.outputs[0];
  const auto finish = [&]() RONDE_REQUIRES(token_) {
    if (!posted || !lane->FinishInline(output)) return false;
    works_.fetch_add(1, std::memory_order_relaxed);
    if (!barrier) bytes_.fetch_add(request.inputs[0].view.size_bytes(), std::memory_order_relaxed);
    return true;
  };
  if (finish()) {
    Unlock(false);
    return true;
  }
  Acquired();
  lane->StopPolling();
  int64_t budget_end = 0;
  for (uint64_t spins = 1; !posted; ++spins) {
    Pause();
    posted = lane->AllPosted();
    if (posted || (spins % 64 != 0 && !context_.oversubscribed)) continue;
    const int64_t now = NowNs();
    if (budget_end == 0) budget_end = now + BudgetNs();
    if (now > budget_end || abort_.raised()) break;
    // Other operations of this rank may be what the missing ones wait for.
    Step();
  }
  if (finish()) {
    Release();
    return true;
  }
  WorkState* work = pool_->Take();
  work->Assign(request);
  work->submitted_ns = NowNs();
  work->Ref();
  lane->Adopt(work);
  Release();
  *adopted = work;
  return false;
}

Status Engine::Wait(WorkState* work, const WaitOptions& options) {
  if (work->done()) return work->status;
  const int64_t deadline = DeadlineNs(options);
  const bool on_progress_thread = std::this_thread::get_id() == progress_.get_id();
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  Status outcome;
  bool capped = false;
  for (;;) {
    if (token_.TryLock()) {
      if (capped) CheckNap();
      Acquired();
      Drive(work, deadline);
      const bool done = work->done();
      if (done) waiters_.fetch_sub(1, std::memory_order_seq_cst);
      Release();
      if (done) return work->status;
    } else {
      // Another thread of this process is at work, maybe on this very operation.
      const int64_t end = NowNs() + BudgetNs();
      while (!work->done() && NowNs() < end) Pause();
    }
    if (work->done()) break;
    if (NowNs() > deadline) {
      outcome = Status::Timeout(fmt::format("{}: not done after {} ms; it stays in flight",
                                            work->Describe(), options.timeout_ms));
      break;
    }
    const int64_t nap = std::clamp<int64_t>(deadline - NowNs(), 0, kNapCapNs);
    if (on_progress_thread) {
      // A callback waits: nobody else would hear the bell.
      Progress(static_cast<int>(nap / kNsPerMs));
    } else {
      capped = !work->Park(nap);
    }
    if (work->done()) break;
    if (options.keep_waiting && !options.keep_waiting()) {
      outcome = Status::Aborted(
          fmt::format("{}: the wait was interrupted; it stays in flight", work->Describe()));
      break;
    }
  }
  waiters_.fetch_sub(1, std::memory_order_seq_cst);
  return work->done() ? work->status : outcome;
}

void Engine::Poll() {
  if (!token_.TryLock()) return;
  Acquired();
  // A poll counts as a wait for its one step, so that buckets move with overlap off too.
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  Step();
  waiters_.fetch_sub(1, std::memory_order_seq_cst);
  Release();
}

// ---- Progress thread ----

bool Engine::Hot() const {
  for (const auto& lane : lanes_) {
    if (lane->running()) return true;
  }
  if (!overlap_ && waiters_.load(std::memory_order_seq_cst) == 0) return false;
  for (const ArenaSet* set : sets_) {
    if (set->running()) return true;
  }
  return false;
}

bool Engine::Pending() const {
  for (const auto& lane : lanes_) {
    if (!lane->empty()) return true;
  }
  if (!named_->empty() || negotiator_.pending()) return true;
  return std::any_of(sets_.begin(), sets_.end(),
                     [](const ArenaSet* set) { return set->pending() != nullptr; });
}

int Engine::EpollTimeoutMs() {
  token_.Lock();
  int timeout = Pending() ? kPendingWakeMs : -1;
  if (negotiator_.wants_write()) timeout = kFlushWakeMs;
  Unlock(false);
  return timeout;
}

void Engine::ProgressLoop() {
  while (!stop_.load(std::memory_order_seq_cst)) {
    Progress(EpollTimeoutMs());
    SaveRecording();
  }
  SaveRecording();
}

void Engine::SaveRecording() {
  if (recording_saved_ || config_.recorder_dir.empty() || !abort_.raised()) return;
  recording_saved_ = true;
  const Status saved =
      context_.recorder->Dump(fmt::format("{}/rank-{}.jsonl", config_.recorder_dir, context_.rank));
  if (!saved.ok()) RONDE_LOG(logger_, kWarning, "{}", saved.message());
}

void Engine::Progress(int timeout_ms) {
  epoll_event events[16];
  epoll_wait(epoll_.get(), events, 16, timeout_ms);
  if (stop_.load(std::memory_order_seq_cst)) return;
  token_.Lock();
  Acquired();
  doorbell_.Drain();
  negotiator_.Poll();
  if (!stopped_) CheckPeers(NowNs());
  int64_t budget_end = NowNs() + BudgetNs();
  for (;;) {
    if (Step()) {
      budget_end = NowNs() + BudgetNs();
    } else if (!Hot() || NowNs() > budget_end) {
      break;
    } else {
      Pause();
    }
  }
  Release();
}

// ---- Slow path ----

Result<DecisionWithFds> Engine::Agree(const wire::Proposal& proposal, const std::vector<int>& fds,
                                      const WaitOptions& options) {
  WorkState* work = pool_->Take();
  work->name = fmt::format("declaration of set '{}'", proposal.key());
  work->submitted_ns = NowNs();
  const Work hold(work);
  auto answer = std::make_shared<DecisionWithFds>();
  token_.Lock();
  Acquired();
  if (stopped_ || abort_.raised()) {
    Complete(work, stopped_ ? Status::Aborted("the Runtime has shut down") : abort_.status());
  } else if (negotiator_.proposed(proposal)) {
    Complete(work, Status::InvalidArgument(fmt::format(
                       "set '{}' is being declared already, by another thread or a call that was "
                       "interrupted",
                       proposal.key())));
  } else {
    negotiator_.Propose(
        proposal, fds,
        [this, work, answer](DecisionWithFds decision) RONDE_NO_THREAD_SAFETY_ANALYSIS {
          *answer = std::move(decision);
          Complete(work,
                   Status(static_cast<Code>(answer->decision.code()), answer->decision.error()));
        });
  }
  Release();
  RONDE_RETURN_IF_ERROR(Wait(work, options));
  return std::move(*answer);
}

void Engine::AddSet(ArenaSet* set) {
  token_.Lock();
  sets_.push_back(set);
  Unlock(false);
}

void Engine::RemoveSet(ArenaSet* set) {
  token_.Lock();
  Acquired();
  set->Fail(Status::Aborted(fmt::format("set '{}' was destroyed", set->spec().name)),
            [this](WorkState* work, const Status& status)
                RONDE_NO_THREAD_SAFETY_ANALYSIS { Complete(work, status); });
  std::erase(sets_, set);
  Release();
}

int64_t Engine::messages() {
  token_.Lock();
  int64_t messages = 0;
  for (const auto& lane : lanes_) messages += lane->messages();
  Unlock(false);
  return messages;
}

// ---- Failure ----

void Engine::RaiseAbort(int culprit, const Status& error) {
  const bool first = !abort_.raised();
  const Status standing = abort_.Raise(culprit, error);
  if (first) {
    context_.recorder->Record(Hop::kAbort, static_cast<uint32_t>(culprit),
                              static_cast<uint64_t>(error.code()));
  }
  if (first) RONDE_LOG(logger_, kDebug, "group error: {}", standing.ToString());
  doorbell_.RingAll();
}

void Engine::CheckPeers(int64_t now_ns) {
  if (abort_.raised()) {
    FailAll(abort_.status());
    return;
  }
  if (!Pending()) return;
  for (int r = 0; r < context_.board.num_ranks(); ++r) {
    if (r == context_.rank || !Watch::IsDead(context_.board, r)) continue;
    RaiseAbort(r, Watch::DeathOf(context_.board, r));
    return;
  }
  const std::vector<int> me = {context_.rank};
  for (const auto& lane : lanes_) {
    const WorkState* head = lane->head();
    if (head == nullptr) continue;
    const auto missing = [&] { return lane->Missing(); };
    if (absence_.Check(head->Describe(), head->submitted_ns, missing, me, now_ns)) return;
  }
  for (const auto& [id, work] : named_->announced()) {
    const auto missing = [&, number = id]()
                             RONDE_NO_THREAD_SAFETY_ANALYSIS { return named_->Missing(number); };
    if (absence_.Check(work->Describe(), work->submitted_ns, missing, me, now_ns)) return;
  }
  for (const ArenaSet* set : sets_) {
    const WorkState* work = set->pending();
    if (work == nullptr) continue;
    const auto missing = [&] { return set->Missing(); };
    if (absence_.Check(work->name, work->submitted_ns, missing, me, now_ns)) return;
  }
  for (const Coordinator::Open& open : negotiator_.open(kAnswerGraceNs)) {
    const auto missing = [&] { return open.missing; };
    if (absence_.Check(open.what, open.since_ns, missing, open.present, now_ns)) return;
  }
}

}  // namespace ronde
