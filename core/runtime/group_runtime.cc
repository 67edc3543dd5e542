#include "core/runtime/group_runtime.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/clock.h"
#include "core/base/fork_guard.h"
#include "core/base/log.h"
#include "core/base/recorder.h"
#include "core/control/rendezvous.h"
#include "core/control/watch.h"
#include "core/exec/engine.h"
#include "core/plan/buckets.h"
#include "core/plan/rules.h"
#include "core/runtime/validate.h"

namespace ronde {
namespace {

LogLevel ParseLogLevel(const std::string& name) {
  constexpr std::pair<const char*, LogLevel> kLevels[] = {{"debug", LogLevel::kDebug},
                                                          {"info", LogLevel::kInfo},
                                                          {"warning", LogLevel::kWarning},
                                                          {"error", LogLevel::kError}};
  for (const auto& [text, level] : kLevels) {
    if (name == text) return level;
  }
  return LogLevel::kOff;
}

int64_t ArenaLimit(const Config& config) {
  if (config.arena_max_bytes > 0) return config.arena_max_bytes;
  const int64_t memory = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return memory / 2 / config.local_size;
}

class GroupRuntime;

// The user's handle of an ArenaSet.
class SetHandle : public Set {
 public:
  SetHandle(GroupRuntime* runtime, std::unique_ptr<ArenaSet> set);
  ~SetHandle() override;

  int num_tensors() const override { return static_cast<int>(set_->spec().tensors.size()); }
  TensorView slot(int t) const override { return set_->slot(static_cast<size_t>(t)); }
  std::shared_ptr<void> slot_memory() const override { return set_->own_arena(); }
  Status Mark(int t) override;
  Status Poison(int t, std::string why) override;
  Status Close() override;
  bool round_open() const override { return set_->round_open(); }
  Status Wait(const WaitOptions& options) override;
  bool Poll() override;
  int contributors(int t) const override { return set_->contributors(static_cast<size_t>(t)); }
  Status tensor_status(int t) const override { return set_->tensor_status(static_cast<size_t>(t)); }
  int64_t round() const override { return set_->round(); }
  const std::vector<int>& buckets() const override { return buckets_; }

 private:
  GroupRuntime* const runtime_;
  const std::unique_ptr<ArenaSet> set_;
  std::vector<int> buckets_;
  Work pending_;  // of the closed round
};

class GroupRuntime : public Runtime {
 public:
  GroupRuntime(const Config& config, std::shared_ptr<MappingCache> mappings)
      : config_(config), mappings_(std::move(mappings)), recorder_(config.recorder_events) {}
  ~GroupRuntime() override { Shutdown(); }

  Status Start(std::shared_ptr<BackendRegistry> backends, const WaitOptions& options) {
    backends_ = std::move(backends);
    Result<RuleTable> rules = RuleTable::Make(config_.rules);
    if (!rules.ok()) return rules.status();
    Result<kernels::Isa> isa = kernels::ParseIsa(config_.kernels);
    if (!isa.ok()) return isa.status();
    // Buffer sizes shape the schedules, so they count as rules.
    const uint64_t hash =
        rules->Hash() ^ static_cast<uint64_t>(config_.staging_max_bytes) * 0x9e3779b97f4a7c15;
    Result<Membership> members = Meet(config_, hash, mappings_.get(), options);
    if (!members.ok()) return members.status();
    BackendContext context;
    context.board = members->board;
    context.rank = config_.rank;
    context.isa = *isa;
    context.recorder = &recorder_;
    context.usable_cores = members->usable_cores;
    context.oversubscribed = config_.local_size > context.usable_cores;
    engine_ =
        std::make_unique<Engine>(config_, std::move(*members), backends_.get(), std::move(*rules),
                                 context, Logger(config_.rank, ParseLogLevel(config_.log_level)));
    watch_ = std::make_unique<Watch>(context.board, config_.rank, [this](int r) {
      engine_->RaiseAbort(r, Watch::DeathOf(engine_->board(), r));
    });
    RONDE_RETURN_IF_ERROR(watch_->Start());
    return engine_->Start();
  }

  const Config& config() const override { return config_; }
  int rank() const override { return config_.rank; }
  int size() const override { return config_.size; }
  int local_rank() const override { return config_.local_rank; }
  int local_size() const override { return config_.local_size; }
  int cross_rank() const override { return 0; }
  int cross_size() const override { return 1; }

  Result<Work> Submit(const Request& request,
                      std::function<void(const Status&)> callback) override {
    Result<WorkState*> work = Prepare(request);
    if (!work.ok()) return work.status();
    (*work)->callback = std::move(callback);
    Work handle(*work);
    engine_->Submit(*work);
    return handle;
  }

  Status Run(const Request& request, const WaitOptions& options, Work* out) override {
    RONDE_RETURN_IF_ERROR(Usable());
    const bool results_kept = !request.outputs.empty() || request.kind == OpKind::kBarrier;
    if ((out == nullptr || results_kept) &&
        ValidateRequest(request, config_.rank, config_.size).ok()) {
      WorkState* adopted = nullptr;
      if (engine_->RunInline(request, &adopted)) return Status::Ok();
      if (adopted != nullptr) {
        const Work handle(adopted);
        adopted->Unref();
        const Status status = engine_->Wait(adopted, options);
        if (out != nullptr) *out = handle;
        return status;
      }
    }
    Result<WorkState*> work = Prepare(request);
    if (!work.ok()) return work.status();
    const Work handle(*work);
    const Status status = engine_->Run(*work, options);
    if (out != nullptr) *out = handle;
    return status;
  }

  Status Wait(const Work& work, const WaitOptions& options) override {
    if (!work.valid()) return Status::InvalidArgument("wait: an empty Work, not one from Submit");
    // What was in flight at a shutdown has its own outcome.
    if (work.done() && !guard_.forked()) return work.status();
    RONDE_RETURN_IF_ERROR(Usable());
    return engine_->Wait(work.state(), options);
  }

  bool Poll(const Work& work) override {
    if (!work.valid()) return true;
    if (!work.done() && Usable().ok()) engine_->Poll();
    return work.done();
  }

  Result<std::unique_ptr<Set>> DeclareSet(const SetSpec& spec,
                                          const WaitOptions& options) override {
    RONDE_RETURN_IF_ERROR(Usable());
    const Status invalid = ValidateSetSpec(spec);
    // Without a proper name there is nothing for the ranks to agree on.
    if (spec.name.empty() || !ValidateName(spec.name).ok()) return invalid;
    RONDE_RETURN_IF_ERROR(AgreeOnSpec(spec, invalid, options));
    std::vector<PlanTensor> tensors;
    for (const SetTensor& tensor : spec.tensors)
      tensors.push_back({tensor.shape.count(), tensor.dtype});
    BucketPlan plan = PlanBuckets(tensors, config_.bucket_bytes);
    Result<std::vector<UniqueFd>> fds = ShareMemory(spec, plan, options);
    if (!fds.ok()) return fds.status();
    Result<ArenaSet::Memory> memory = MapMemory(*fds);
    if (!memory.ok()) {
      // The others count on this rank by now.
      engine_->RaiseAbort(config_.rank, memory.status());
      return memory.status();
    }
    auto set = std::make_unique<ArenaSet>(spec, std::move(plan), std::move(*memory),
                                          engine_->context(), engine_->overlap(), engine_->pool());
    RONDE_RETURN_IF_ERROR(set->Open(engine_->default_backend()));
    engine_->AddSet(set.get());
    return std::unique_ptr<Set>(std::make_unique<SetHandle>(this, std::move(set)));
  }

  Status health() const override {
    if (guard_.forked()) return Usable();
    return engine_->health();
  }

  RuntimeStats stats() const override {
    RuntimeStats stats;
    if (guard_.forked()) return stats;
    stats.works = engine_->works();
    stats.bytes = engine_->bytes();
    stats.messages = engine_->messages();
    stats.rounds = engine_->rounds();
    stats.capped_sleeps = engine_->capped_sleeps();
    stats.rings = engine_->doorbell().rings();
    return stats;
  }

  void Shutdown() override {
    // A forked child has neither the threads nor the right to say goodbye for its parent.
    if (guard_.forked()) {
      (void)engine_.release();
      (void)watch_.release();
      return;
    }
    const std::lock_guard<std::mutex> lock(shutdown_mutex_);
    if (down_.exchange(true)) return;
    if (engine_ != nullptr) engine_->Stop();
    if (watch_ != nullptr) watch_->Stop();
    if (engine_ != nullptr) engine_->doorbell().RingAll();
  }

  Status Usable() const {
    if (guard_.forked()) {
      return Status::NotInitialized(
          "this process was forked from a rank and is none itself: a forked child "
          "cannot communicate");
    }
    if (down_.load(std::memory_order_relaxed)) {
      return Status::NotInitialized("the Runtime has been shut down");
    }
    return Status::Ok();
  }
  bool forked() const { return guard_.forked(); }
  Engine* engine() const { return engine_.get(); }

 private:
  // A work with one reference, ready for the engine.
  Result<WorkState*> Prepare(const Request& request) {
    RONDE_RETURN_IF_ERROR(Usable());
    RONDE_RETURN_IF_ERROR(ValidateName(request.name));
    if (!request.name.empty() && !engine_->ReserveName(std::string(request.name))) {
      return Status::InvalidArgument(fmt::format(
          "{} '{}': an operation of this name is in flight already; names in flight must be "
          "unique",
          OpKindName(request.kind), request.name));
    }
    WorkState* work = engine_->pool()->Take();
    work->Assign(request);
    work->invalid = ValidateRequest(request, config_.rank, config_.size);
    // What does not hold together must not be read: the operation only carries its error around.
    if (!work->invalid.ok()) {
      work->inputs.clear();
      work->splits.clear();
    }
    work->submitted_ns = NowNs();
    return work;
  }

  Status AgreeOnSpec(const SetSpec& spec, const Status& invalid, const WaitOptions& options) {
    Description description;
    description.kind = OpKind::kAllreduce;
    description.op = spec.op;
    description.prescale = spec.prescale;
    description.postscale = spec.postscale;
    description.bucket_bytes = config_.bucket_bytes;
    description.invalid = invalid.message();
    if (invalid.ok()) {
      for (const SetTensor& tensor : spec.tensors) {
        description.tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
      }
    }
    wire::Proposal proposal;
    proposal.set_subject(wire::SUBJECT_DECLARE);
    proposal.set_key(spec.name);
    ToWire(description, proposal.mutable_descriptor());
    Result<DecisionWithFds> decision = engine_->Agree(proposal, {}, options);
    if (!decision.ok()) return invalid.ok() ? decision.status() : invalid;
    return Status::Ok();
  }

  // Second phase: every rank makes its arena; either all succeed or all fail. Returns rank 0's
  // arena, the segment, and the others' arenas.
  Result<std::vector<UniqueFd>> ShareMemory(const SetSpec& spec, const BucketPlan& plan,
                                            const WaitOptions& options) {
    wire::Proposal proposal;
    proposal.set_subject(wire::SUBJECT_COMMIT);
    proposal.set_key(spec.name);
    std::vector<UniqueFd> own;
    const Status made = MakeMemory(spec, plan, &own);
    proposal.set_code(static_cast<uint32_t>(made.code()));
    proposal.set_error(std::string(made.message()));
    std::vector<int> raw;
    for (const UniqueFd& fd : own) raw.push_back(fd.get());
    Result<DecisionWithFds> decision = engine_->Agree(proposal, raw, options);
    if (!decision.ok()) return decision.status();
    return std::move(decision->fds);
  }

  Result<ArenaSet::Memory> MapMemory(const std::vector<UniqueFd>& fds) {
    const auto n = static_cast<size_t>(config_.size);
    if (fds.size() != n + 1) return Status::Internal("a set's memory lacks descriptors");
    ArenaSet::Memory memory;
    for (size_t i = 0; i <= n; ++i) {
      Result<std::shared_ptr<Mapping>> mapping = mappings_->Map(fds[i].get());
      if (!mapping.ok()) return mapping.status();
      if (i == 1) {
        memory.segment = std::move(*mapping);
        continue;
      }
      // Map the others' pages now, not in the first round.
      RONDE_RETURN_IF_ERROR((*mapping)->Populate());
      memory.arenas.push_back(std::move(*mapping));
    }
    return memory;
  }

  Status MakeMemory(const SetSpec& spec, const BucketPlan& plan, std::vector<UniqueFd>* out) {
    const int64_t limit = ArenaLimit(config_);
    if (plan.arena_bytes > limit) {
      return Status::OutOfMemory(
          fmt::format("the arena of set '{}' needs {} bytes, allowed are {} (RONDE_ARENA_MAX)",
                      spec.name, plan.arena_bytes, limit));
    }
    const size_t bytes = std::max<size_t>(static_cast<size_t>(plan.arena_bytes), 4096);
    Result<UniqueFd> arena = CreateSharedMemory("arena-" + spec.name.substr(0, 200), bytes);
    if (!arena.ok()) return arena.status();
    Result<std::shared_ptr<Mapping>> mapping = mappings_->Map(arena->get());
    if (!mapping.ok()) return mapping.status();
    RONDE_RETURN_IF_ERROR((*mapping)->Populate());
    out->push_back(std::move(*arena));
    if (config_.rank != 0) return Status::Ok();
    Result<UniqueFd> segment = CreateSharedMemory(
        "set", SetSegment::Bytes(config_.size, plan.buckets.size(), spec.tensors.size()));
    if (!segment.ok()) return segment.status();
    out->push_back(std::move(*segment));
    return Status::Ok();
  }

  const Config config_;
  const std::shared_ptr<MappingCache> mappings_;
  const ForkGuard guard_;
  Recorder recorder_;
  std::shared_ptr<BackendRegistry> backends_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Watch> watch_;
  std::mutex shutdown_mutex_;
  std::atomic<bool> down_{false};
};

SetHandle::SetHandle(GroupRuntime* runtime, std::unique_ptr<ArenaSet> set)
    : runtime_(runtime), set_(std::move(set)) {
  for (const Placement& placement : set_->plan().placements) buckets_.push_back(placement.bucket);
}

SetHandle::~SetHandle() {
  // Also after a shutdown: the engine lives as long as the Runtime. Not in a forked child, where
  // another thread may hold the token for ever.
  if (!runtime_->forked()) runtime_->engine()->RemoveSet(set_.get());
}

Status SetHandle::Mark(int t) {
  RONDE_RETURN_IF_ERROR(runtime_->Usable());
  return set_->Mark(static_cast<size_t>(t));
}

Status SetHandle::Poison(int t, std::string why) {
  RONDE_RETURN_IF_ERROR(runtime_->Usable());
  return set_->Poison(static_cast<size_t>(t), why);
}

Status SetHandle::Close() {
  RONDE_RETURN_IF_ERROR(runtime_->Usable());
  Result<Work> work = set_->Close();
  if (!work.ok()) return work.status();
  pending_ = std::move(*work);
  return Status::Ok();
}

Status SetHandle::Wait(const WaitOptions& options) {
  if (!pending_.valid()) return Status::Ok();
  RONDE_RETURN_IF_ERROR(runtime_->Wait(pending_, options));
  pending_ = Work();
  return Status::Ok();
}

bool SetHandle::Poll() {
  return !pending_.valid() || runtime_->Poll(pending_);
}

}  // namespace

Result<std::unique_ptr<Runtime>> CreateGroupRuntime(const Config& config,
                                                    std::shared_ptr<BackendRegistry> backends,
                                                    const WaitOptions& options,
                                                    std::shared_ptr<MappingCache> mappings) {
  if (config.local_size != config.size) {
    return Status::Unsupported(fmt::format(
        "RONDE_LOCAL_SIZE={} and RONDE_SIZE={}: jobs over several hosts are not built yet; "
        "start all ranks on one host",
        config.local_size, config.size));
  }
  if (mappings == nullptr) mappings = std::make_shared<MappingCache>();
  auto runtime = std::make_unique<GroupRuntime>(config, std::move(mappings));
  RONDE_RETURN_IF_ERROR(runtime->Start(std::move(backends), options));
  return std::unique_ptr<Runtime>(std::move(runtime));
}

}  // namespace ronde
