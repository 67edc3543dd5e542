#include "core/exec/engine.h"

#include <fcntl.h>
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
constexpr int64_t kAnswerGraceMs =
    2000;  // by so much the coordinator, who knows more, times out first

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
      channels_(std::move(members.channels)) {
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
  const auto watch_fd = [this](int fd, uint32_t tag) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = tag;
    return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  };
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
        [this](const std::string& name, const Description& description)
            RONDE_NO_THREAD_SAFETY_ANALYSIS {
              wire::Proposal proposal;
              proposal.set_subject(wire::SUBJECT_NAME);
              proposal.set_key(name);
              ToWire(description, proposal.mutable_descriptor());
              Propose(proposal, {}, [this](DecisionWithFds d) RONDE_NO_THREAD_SAFETY_ANALYSIS {
                named_->OnDecision(d.decision.key(),
                                   Status(static_cast<Code>(d.decision.code()), d.decision.error()),
                                   d.decision.id(), d.decision.once());
              });
            },
        complete);
    if (context_.rank == 0) {
      coordinator_ = std::make_unique<Coordinator>(context_.board);
      named_->on_once_consumed =
          [this](uint32_t id, uint64_t position)
              RONDE_NO_THREAD_SAFETY_ANALYSIS { coordinator_->OnceConsumed(id, position); };
    }
    bool watched = watch_fd(doorbell_.own_fd(), 0);
    for (const auto& channel : channels_) {
      if (channel != nullptr) watched &= watch_fd(channel->fd(), 1);
    }
    if (!watched) status = Status::FromErrno("epoll_ctl");
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
  if (steps_ % kChannelEvery == 0 && !awaiting_.empty()) busy |= PollChannels();
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
  auto awaiting = std::move(awaiting_);
  awaiting_.clear();
  for (auto& [key, awaited] : awaiting) {
    DecisionWithFds failed;
    failed.decision.set_code(static_cast<uint32_t>(error.code()));
    failed.decision.set_error(std::string(error.message()));
    awaited.then(std::move(failed));
  }
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
                    {}},
                   /*polled=*/true);
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
  if (!named_->empty() || !awaiting_.empty()) return true;
  if (coordinator_ != nullptr && !coordinator_->empty()) return true;
  return std::any_of(sets_.begin(), sets_.end(),
                     [](const ArenaSet* set) { return set->pending() != nullptr; });
}

int Engine::EpollTimeoutMs() {
  token_.Lock();
  int timeout = Pending() ? kPendingWakeMs : -1;
  for (const auto& channel : channels_) {
    if (channel != nullptr && channel->wants_write()) timeout = kFlushWakeMs;
  }
  Unlock(false);
  return timeout;
}

void Engine::ProgressLoop() {
  while (!stop_.load(std::memory_order_seq_cst)) Progress(EpollTimeoutMs());
}

void Engine::Progress(int timeout_ms) {
  epoll_event events[16];
  epoll_wait(epoll_.get(), events, 16, timeout_ms);
  if (stop_.load(std::memory_order_seq_cst)) return;
  token_.Lock();
  Acquired();
  doorbell_.Drain();
  PollChannels();
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

bool Engine::PollChannels() {
  bool busy = false;
  for (size_t r = 0; r < channels_.size(); ++r) {
    while (channels_[r] != nullptr && Receive(static_cast<int>(r))) busy = true;
  }
  return busy;
}

bool Engine::Receive(int r) {
  Channel* channel = channels_[static_cast<size_t>(r)].get();
  if (channel->wants_write() && !channel->Flush().ok()) {
    ChannelClosed(r);
    return true;
  }
  Frame frame;
  const Result<bool> received = channel->Receive(&frame);
  if (!received.ok()) {
    if (received.status().code() != Code::kPeerLost) RaiseAbort(r, received.status());
    ChannelClosed(r);
    return true;
  }
  if (!*received) return false;
  if (context_.rank == 0) {
    wire::Proposal proposal;
    if (frame.type != FrameType::kProposal || !proposal.ParseFromString(frame.body)) {
      RaiseAbort(r, Status::Internal(fmt::format("rank {} sent a malformed proposal", r)));
      return true;
    }
    HandleProposal(r, proposal, std::move(frame.fds));
  } else {
    DecisionWithFds decision;
    if (frame.type != FrameType::kDecision || !decision.decision.ParseFromString(frame.body)) {
      RaiseAbort(r, Status::Internal("rank 0 sent a malformed decision"));
      return true;
    }
    decision.fds = std::move(frame.fds);
    HandleDecision(std::move(decision));
  }
  return true;
}

void Engine::ChannelClosed(int r) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, channels_[static_cast<size_t>(r)]->fd(), nullptr);
  channels_[static_cast<size_t>(r)].reset();
  // A closed socket is no proof of death by itself: whoever leaves announces it on the board first.
  if (context_.board.phase(r).load(std::memory_order_seq_cst) !=
      static_cast<uint32_t>(Phase::kLeft)) {
    RaiseAbort(r, Status::PeerLost(fmt::format("rank {} (process {}) closed its control channel", r,
                                               context_.board.process_id(r).load())));
  }
}

void Engine::Propose(const wire::Proposal& proposal, const std::vector<int>& fds, DecisionFn then) {
  awaiting_[{static_cast<int>(proposal.subject()), proposal.key()}] = {std::move(then), NowNs()};
  if (context_.rank == 0) {
    std::vector<UniqueFd> own;
    for (const int fd : fds) own.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    HandleProposal(0, proposal, std::move(own));
    return;
  }
  // Without a channel rank 0 has left, and CheckProposals says so.
  if (channels_[0] == nullptr) return;
  const Status sent = channels_[0]->Send(FrameType::kProposal, proposal.SerializeAsString(), fds);
  if (!sent.ok() && sent.code() != Code::kPeerLost) RaiseAbort(context_.rank, sent);
  // The progress thread sends what the socket did not take.
  if (channels_[0]->wants_write()) doorbell_.RingSelf();
}

void Engine::HandleProposal(int r, const wire::Proposal& proposal, std::vector<UniqueFd> fds) {
  for (DecisionWithFds& ready : coordinator_->Add(r, proposal, std::move(fds))) {
    std::vector<int> raw;
    for (const UniqueFd& fd : ready.fds) raw.push_back(fd.get());
    const std::string body = ready.decision.SerializeAsString();
    for (const auto& channel : channels_) {
      if (channel == nullptr) continue;
      const Status sent = channel->Send(FrameType::kDecision, body, raw);
      // A rank that is gone is noticed by its channel's end.
      if (!sent.ok() && sent.code() != Code::kPeerLost) RaiseAbort(0, sent);
      if (channel->wants_write()) doorbell_.RingSelf();
    }
    HandleDecision(std::move(ready));
  }
}

void Engine::HandleDecision(DecisionWithFds decision) {
  const auto it =
      awaiting_.find({static_cast<int>(decision.decision.subject()), decision.decision.key()});
  if (it == awaiting_.end()) return;
  const DecisionFn then = std::move(it->second.then);
  awaiting_.erase(it);
  then(std::move(decision));
}

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
  } else if (awaiting_.contains({static_cast<int>(proposal.subject()), proposal.key()})) {
    Complete(work, Status::InvalidArgument(fmt::format(
                       "set '{}' is being declared already, by another thread or a call that was "
                       "interrupted",
                       proposal.key())));
  } else {
    Propose(proposal, fds,
            [this, work, answer](DecisionWithFds decision) RONDE_NO_THREAD_SAFETY_ANALYSIS {
              *answer = std::move(decision);
              Complete(work, Status(static_cast<Code>(answer->decision.code()),
                                    answer->decision.error()));
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

bool Engine::CheckMissing(const std::string& what, int64_t since_ns,
                          const std::function<std::vector<int>()>& missing,
                          const std::vector<int>& waiting, int64_t now_ns) {
  const auto left = [this](int r) {
    return context_.board.phase(r).load(std::memory_order_seq_cst) ==
           static_cast<uint32_t>(Phase::kLeft);
  };
  std::vector<int> late = missing();
  std::vector<int> gone;
  std::copy_if(late.begin(), late.end(), std::back_inserter(gone), left);
  // Whoever has left may have done its part just before; from now on it does nothing more.
  if (!gone.empty()) late = missing();
  for (const int r : gone) {
    if (std::find(late.begin(), late.end(), r) == late.end()) continue;
    RaiseAbort(r, Status::PeerLost(
                      fmt::format("rank {} has left the job (shutdown), but {} wait{} for it in {}",
                                  r, RankList(waiting), waiting.size() == 1 ? "s" : "", what)));
    return true;
  }
  if (late.empty()) return false;
  const int64_t waited_ms = (now_ns - since_ns) / kNsPerMs;
  if (waited_ms > config_.timeout_ms) {
    RaiseAbort(late.front(), Status::Timeout(fmt::format(
                                 "{}: {} did not arrive within {} s (RONDE_TIMEOUT_S)", what,
                                 RankList(late), static_cast<double>(config_.timeout_ms) / 1000)));
    return true;
  }
  if (waited_ms > config_.stall_warn_ms && warned_.insert(what).second) {
    RONDE_LOG(logger_, kWarning, "{} has waited {} s for {}", what, waited_ms / 1000,
              RankList(late));
  }
  return false;
}

// Rank 0 alone knows who has proposed; the others only whether rank 0 still answers.
bool Engine::CheckProposals(int64_t now_ns) {
  if (coordinator_ != nullptr) {
    for (const Coordinator::Open& open : coordinator_->open()) {
      const auto missing = [&] { return open.missing; };
      if (CheckMissing(open.what, open.since_ns, missing, open.present, now_ns)) return true;
    }
    return false;
  }
  if (awaiting_.empty()) return false;
  const auto oldest = std::min_element(
      awaiting_.begin(), awaiting_.end(),
      [](const auto& a, const auto& b) { return a.second.since_ns < b.second.since_ns; });
  return CheckMissing(
      fmt::format("the agreement on '{}'", oldest->first.second),
      oldest->second.since_ns + kAnswerGraceMs * kNsPerMs, [] { return std::vector<int>{0}; },
      {context_.rank}, now_ns);
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
    if (CheckMissing(head->Describe(), head->submitted_ns, missing, me, now_ns)) return;
  }
  for (const auto& [id, work] : named_->announced()) {
    const auto missing = [&, number = id]()
                             RONDE_NO_THREAD_SAFETY_ANALYSIS { return named_->Missing(number); };
    if (CheckMissing(work->Describe(), work->submitted_ns, missing, me, now_ns)) return;
  }
  for (const ArenaSet* set : sets_) {
    const WorkState* work = set->pending();
    if (work == nullptr) continue;
    const auto missing = [&] { return set->Missing(); };
    if (CheckMissing(work->name, work->submitted_ns, missing, me, now_ns)) return;
  }
  CheckProposals(now_ns);
}

}  // namespace ronde
