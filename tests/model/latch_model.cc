#include "tests/model/latch_model.h"

#include <algorithm>
#include <utility>

namespace ronde::model {

World::World(uint64_t seed, const Options& options)
    : options_(options), random_(seed * 0x9E3779B97F4A7C15u + 1) {
  Program();
}

uint32_t World::Random(uint32_t below) {
  random_ += 0x9E3779B97F4A7C15u;
  uint64_t x = random_;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return static_cast<uint32_t>(((x >> 32) * below) >> 32);
}

bool World::Check(bool holds, const char* what) {
  if (!holds && failure_.empty()) failure_ = what;
  return holds;
}

// Draws what the users will do: the same operations on all ranks, in an order of its own on each.
void World::Program() {
  n_ = 2 + static_cast<int>(Random(3));
  rounds_ = 2 + static_cast<int>(Random(4));
  first_buckets_ = static_cast<int>(Random(kMaxBuckets));
  int fewest = rounds_;
  for (int r = 0; r < n_; ++r) {
    rounds_of_[r] = options_.join ? static_cast<int>(Random(rounds_ + 1)) : rounds_;
    fewest = std::min(fewest, rounds_of_[r]);
  }
  presence_.resize(rounds_);
  for (auto& round : presence_) {
    for (int r = 0; r < n_; ++r) {
      for (Presence& p : round[r]) {
        const uint32_t draw = Random(16);
        p = draw < 4 ? Presence::kAbsent : draw == 4 ? Presence::kPoisoned : Presence::kPresent;
      }
    }
  }
  // Blocking calls in different orders would be the users' own deadlock: a round that may block has
  // one order of operations on all ranks.
  int position = 0;
  for (int s = 0; options_.operations && s < fewest; ++s) {
    const bool may_block = Random(2) == 0;
    for (uint32_t i = Random(3); i > 0; --i) {
      Operation op{.named = Random(2) == 0,
                   .may_block = may_block,
                   .id = static_cast<int>(Random(kIds)),
                   .round = s};
      if (!op.named) op.position = position++;
      for (int r = 0; r < n_; ++r) op.signature[r] = Random(16) == 0;
      operations_.push_back(op);
    }
  }
  generation_of_step_.assign(rounds_ + 1, -1);
  unnamed_outcome_.assign(position, -1);
}

World::Presence World::PresenceOf(int rank, int step, int tensor) const {
  return step < rounds_of_[rank] ? presence_[step][rank][tensor] : Presence::kAbsent;
}

const std::string& World::Run() {
  // Some actors are slow for a while, so that others run far ahead.
  uint32_t slow = 0;
  int until_event = (options_.death || options_.stall) ? static_cast<int>(Random(1500)) : kNever;
  int idle = 0;
  while (failure_.empty()) {
    if (Random(64) == 0) slow = Random(1u << (2 * n_));
    if (--until_event == 0) {
      const int victim = static_cast<int>(Random(n_));
      if (options_.stall && Random(2) == 0 && abort_ < 0 && Alive(victim)) {
        abort_ = victim;  // by the stall watch of somebody
        lost_[victim] = true;
      } else if (options_.death && std::count(dead_.begin(), dead_.begin() + n_, false) > 1) {
        dead_[victim] = true;
      }
      until_event = Random(2) == 0 ? 1 + static_cast<int>(Random(100)) : kNever;
    }
    const int actor = static_cast<int>(Random(2 * n_));
    if ((slow >> actor & 1) != 0 && Random(8) != 0) continue;
    const bool moved = actor < n_ ? UserActs(actor) : EngineActs(actor - n_);
    if (moved) {
      idle = 0;
      continue;
    }
    if (++idle < 4 * n_) continue;
    forced_ = true;
    bool any = false;
    for (int a = 0; a < 2 * n_ && !any; ++a) any = a < n_ ? UserActs(a) : EngineActs(a - n_);
    forced_ = false;
    idle = 0;
    if (!any) break;
  }
  if (failure_.empty()) JudgeTheEnd();
  return failure_;
}

void World::JudgeTheEnd() {
  for (int r = 0; r < n_; ++r) {
    if (!Alive(r)) continue;
    const User& u = user_[r];
    Check(u.at == At::kDone || (aborted() && u.at == At::kError), "a rank is stuck");
    if (u.at != At::kError || lost_[r]) continue;
    // A result that the verdict calls complete is there, in this rank's own slot, whatever a zombie
    // wrote since.
    const int g = u.generation;
    for (int k = 0; k < Buckets(g) && !options_.act_on_own_reading; ++k) {
      if (verdict_[g][k] <= u.step || engine_[r].reduced[g][k] <= u.step) continue;
      for (int i = 0; i < n_; ++i) {
        const Slice& slice = segment_[g].slot[r][k][i];
        Check(slice.step == u.step && slice.ranks == (1u << n_) - 1,
              "the verdict promises a result that is not there");
      }
    }
  }
}

// ---- The user's thread: hooks, operations, waiting.

bool World::UserActs(int rank) {
  User& u = user_[rank];
  if (!Alive(rank) || u.at == At::kDone || u.at == At::kError) return false;
  if (engine_[rank].frozen && (u.at == At::kWait || Maybe(4))) {  // a hook may go on for a while
    if (lost_[rank]) {  // it was expelled; nobody is left to tell it more, perhaps
      u.at = At::kError;
      return true;
    }
    if (!has_verdict_ && !options_.act_on_own_reading) return false;
    EndWithError(rank);
    return true;
  }
  switch (u.at) {
    case At::kBegin:
      return BeginRound(rank);
    case At::kRound:
      return NextItem(rank);
    case At::kPublish:
      Publish(rank);
      return true;
    case At::kClaim:  // at least the last of those who publish an occurrence sees that all have
      if (Claim(rank, u.gather_id)) {
        u.batch = {u.gather_id};
        u.gather_id = 0;
        u.at = At::kGather;
      } else {
        u.at = u.blocked_on >= 0 ? At::kBlocked : At::kRound;
      }
      return true;
    case At::kGather:
      if (Claim(rank, u.gather_id)) u.batch.push_back(u.gather_id);
      if (++u.gather_id == kIds) u.at = At::kReserve;
      return true;
    case At::kReserve:
      u.log_pos = std::exchange(tail_, tail_ + static_cast<int>(u.batch.size()));
      u.stored = 0;
      u.at = At::kStore;
      return true;
    case At::kStore: {
      const int pos = u.log_pos + static_cast<int>(u.stored);
      LogEntry& entry = log_[pos % kIds];
      for (int r = 0; r < n_; ++r)
        Check(engine_[r].cursor >= entry.tag, "an entry of the log was overwritten unread");
      entry = {pos + 1, u.batch[u.stored]};
      if (++u.stored == u.batch.size()) u.at = u.blocked_on >= 0 ? At::kBlocked : At::kRound;
      return true;
    }
    case At::kBlocked:
      if (!OperationDone(rank, u.blocked_on)) return false;
      u.blocked_on = -1;
      u.at = At::kRound;
      return true;
    case At::kClose:
      for (int k = 0; k < Buckets(u.generation); ++k) {
        if (u.remaining[k] == 0) continue;
        for (int t = 0; t < kTensors; ++t) {
          if (BucketOf(t, u.generation) == k && PresenceOf(rank, u.step, t) == Presence::kAbsent)
            Mark(rank, t, false);
        }
        u.back_to = At::kClose;
        return true;
      }
      u.at = At::kWait;
      return true;
    case At::kWait:
      return FinishRound(rank);
    case At::kJoined:
      return JoinedWaits(rank);
    case At::kDrain:
      for (size_t i = 0; i < operations_.size(); ++i) {
        if (!OperationDone(rank, static_cast<int>(i))) return false;
      }
      u.at = At::kDone;
      return true;
    case At::kDone:
    case At::kError:
      return false;
  }
  return false;
}

bool World::BeginRound(int rank) {
  User& u = user_[rank];
  Engine& e = engine_[rank];
  if (u.step == rounds_of_[rank] && !u.joined) {
    u.at = options_.join ? At::kJoined : At::kDrain;
    return true;
  }
  if (u.step >= e.limit) {
    ++waits_at_limit_;
    return false;
  }
  if (u.step >= e.switch_at) {
    e.switch_at = kNever;
    ++u.generation;
  }
  int& generation = generation_of_step_[u.step];
  if (generation < 0) generation = u.generation;
  Check(generation == u.generation, "two plan generations in one step");
  u.remaining.fill(0);
  u.script.clear();
  for (int t = 0; t < kTensors; ++t) {
    ++u.remaining[BucketOf(t, u.generation)];
    if (PresenceOf(rank, u.step, t) != Presence::kAbsent) u.script.push_back(t);
  }
  for (size_t i = 0; i < operations_.size() && !u.joined; ++i) {
    if (operations_[i].round == u.step) u.script.push_back(kTensors + static_cast<int>(i));
  }
  for (size_t i = u.script.size(); i > 1; --i)
    std::swap(u.script[i - 1], u.script[Random(static_cast<uint32_t>(i))]);
  // Unnamed operations keep their order, and so do all in a round that may block.
  std::vector<size_t> places;
  std::vector<int> ordered;
  for (size_t i = 0; i < u.script.size(); ++i) {
    const int item = u.script[i];
    if (item < kTensors) continue;
    const Operation& op = operations_[item - kTensors];
    if (op.named && !op.may_block) continue;
    places.push_back(i);
    ordered.push_back(item);
  }
  std::sort(ordered.begin(), ordered.end());
  for (size_t i = 0; i < places.size(); ++i) u.script[places[i]] = ordered[i];
  u.next = 0;
  u.at = At::kRound;
  return true;
}

bool World::NextItem(int rank) {
  User& u = user_[rank];
  if (u.next == u.script.size()) {
    u.at = At::kClose;
    return true;
  }
  const int item = u.script[u.next];
  if (item < kTensors) {
    ++u.next;
    u.back_to = At::kRound;
    Mark(rank, item, true);
    return true;
  }
  if (!SubmitOperation(rank, item - kTensors)) return false;
  ++u.next;
  return true;
}

// The copy into the slot; the last tensor of a bucket publishes it, in an action of its own.
void World::Mark(int rank, int tensor, bool present) {
  User& u = user_[rank];
  const int k = BucketOf(tensor, u.generation);
  Slot& slot = segment_[u.generation].slot[rank][k];
  const bool first = slot[0].step != u.step && slot[n_ - 1].step != u.step;
  for (int i = 0; i < n_; ++i) {
    Slice& slice = slot[i];
    if (first) {
      Check(slice.step < 0 || slice.ranks == (1u << n_) - 1,
            "a slot was overwritten before it was reduced");
      slice = {.step = u.step, .ranks = 1u << rank, .contributors = {}};
    }
    Check(slice.step == u.step && slice.ranks == 1u << rank,
          "a tensor was marked after its bucket was reduced");
    const bool poisoned = present && PresenceOf(rank, u.step, tensor) == Presence::kPoisoned;
    slice.contributors[tensor] = !present ? 0 : poisoned ? kPoison : 1;
  }
  if (--u.remaining[k] > 0) return;
  u.bucket = k;
  u.at = At::kPublish;
}

void World::Publish(int rank) {
  User& u = user_[rank];
  int& arrived = segment_[u.generation].arrived[rank][u.bucket];
  Check(arrived <= u.step, "a bucket was published twice in a step");
  arrived = u.step + 1;
  u.at = u.back_to;
}

// Named: publish the occurrence, then try to be the one who appends it. Unnamed: the engine's lane
// takes it.
bool World::SubmitOperation(int rank, int operation) {
  User& u = user_[rank];
  const Operation& op = operations_[operation];
  if (op.named && named_done_[rank][op.id] < occurrences_[rank][op.id])
    return false;  // one in flight per name
  u.blocked_on = op.may_block && Random(2) == 0 ? operation : -1;
  if (op.named) {
    ++occurrences_[rank][op.id];
    u.gather_id = op.id;
    u.at = At::kClaim;
  } else if (u.blocked_on >= 0) {
    u.at = At::kBlocked;
  }
  return true;
}

bool World::Claim(int rank, int id) {
  (void)rank;
  const int next = claim_[id] + 1;
  for (int r = 0; r < n_; ++r) {
    if (occurrences_[r][id] < next) return false;
  }
  claim_[id] = next;
  return true;
}

bool World::OperationDone(int rank, int operation) const {
  const Operation& op = operations_[operation];
  if (!op.named) return engine_[rank].cells_read > op.position;
  return named_done_[rank][op.id] == occurrences_[rank][op.id];
}

bool World::FinishRound(int rank) {
  User& u = user_[rank];
  const int g = u.generation;
  for (int k = 0; k < Buckets(g); ++k) {
    if (engine_[rank].completed[g][k] <= u.step) return false;
  }
  for (int k = 0; k < Buckets(g); ++k) {
    for (int i = 0; i < n_; ++i) {
      const Slice& slice = segment_[g].slot[rank][k][i];
      Check(slice.step == u.step && slice.ranks == (1u << n_) - 1, "a result lacks a contribution");
      for (int t = 0; t < kTensors; ++t) {
        int expected = 0;
        for (int r = 0; r < n_ && BucketOf(t, g) == k; ++r) {
          const Presence p = PresenceOf(r, u.step, t);
          expected += p == Presence::kAbsent ? 0 : p == Presence::kPresent ? 1 : kPoison;
        }
        Check(slice.contributors[t] == expected, "ranks disagree about the contributors");
      }
    }
  }
  ++u.step;
  u.at = u.joined ? At::kJoined : At::kBegin;
  return true;
}

// Joined: takes part, absent throughout, in every round that a peer has begun; ends when all have
// joined.
bool World::JoinedWaits(int rank) {
  User& u = user_[rank];
  const Engine& e = engine_[rank];
  if (!u.joined) {
    u.joined = joined_[rank] = true;
    return true;
  }
  const int g = u.step >= e.switch_at ? u.generation + 1 : u.generation;
  for (int r = 0; r < n_; ++r) {
    for (int k = 0; k < Buckets(g); ++k) {
      if (segment_[g].arrived[r][k] <= u.step) continue;
      u.at = At::kBegin;
      return BeginRound(rank);
    }
  }
  for (int r = 0; r < n_; ++r) {
    if (!joined_[r]) return false;
  }
  if (join_ended_ < 0) join_ended_ = u.step;
  Check(join_ended_ == u.step, "join ended at different steps");
  u.at = At::kDrain;
  return true;
}

void World::EndWithError(int rank) {
  User& u = user_[rank];
  u.at = At::kError;
  for (int g = 0; g < kMaxGenerations; ++g) {
    for (int k = 0; k < Buckets(g); ++k) {
      const int complete = options_.act_on_own_reading ? MinDone(g, k) : verdict_[g][k];
      // The first to act sets what all must find.
      if (options_.act_on_own_reading) {
        if (!has_verdict_) verdict_[g][k] = complete;
        Check(verdict_[g][k] == complete, "ranks acted on different verdicts");
      }
      Check(g != u.generation || complete >= engine_[rank].completed[g][k],
            "a result that was used is not in the verdict");
    }
  }
  has_verdict_ = true;
}

// ---- The engine: reduces, completes, consumes, negotiates, settles.

bool World::EngineActs(int rank) {
  if (!Alive(rank)) return false;
  Engine& e = engine_[rank];
  if (e.frozen) return Settle(rank);
  // It looks at the abort word now and then; a zombie goes on for longer.
  if (aborted() && Maybe(lost_[rank] ? 16 : 4)) {
    e.reducing = -1;
    e.frozen = true;
    return true;
  }
  if (!aborted() && Maybe(4)) {
    for (int r = 0; r < n_; ++r) {
      if (Alive(r)) continue;
      abort_ = r;
      return true;
    }
  }
  if (e.reducing >= 0) return Reduce(rank);
  // Nothing is reduced between the reading of e and the promise, else the user could get ahead of
  // it.
  if (e.answer >= 0 || (!e.inbox.empty() && Maybe(3))) return Receive(rank);
  if (rank == 0 && options_.plan_switch && !proposing_ && Maybe(16) && Propose()) return true;
  const uint32_t first = Random(3);
  for (uint32_t i = 0; i < 3; ++i) {
    switch ((first + i) % 3) {
      case 0:
        for (int g = 0; g <= user_[rank].generation; ++g) {
          for (int k = 0; k < Buckets(g); ++k) {
            if (Complete(rank, g, k) || StartReduce(rank, g, k)) return true;
          }
        }
        break;
      case 1:
        if (ConsumeLog(rank)) return true;
        break;
      case 2:
        if (UnnamedLane(rank)) return true;
        break;
      default:
        break;
    }
  }
  return false;
}

bool World::StartReduce(int rank, int generation, int bucket) {
  Engine& e = engine_[rank];
  Segment& segment = segment_[generation];
  const int step = std::max(e.reduced[generation][bucket], segment.first_step);
  for (int r = 0; r < n_; ++r) {
    if (segment.arrived[r][bucket] <= step) return false;
  }
  e.sum = {.step = step, .ranks = 0, .contributors = {}};
  for (int r = 0; r < n_; ++r) {
    const Slice& slice = segment.slot[r][bucket][rank];
    if (!Check(slice.step == step, "a contribution of another step")) return true;
    Check(slice.ranks == 1u << r, "a slice was reduced twice");
    e.sum.ranks |= slice.ranks;
    for (int t = 0; t < kTensors; ++t) e.sum.contributors[t] += slice.contributors[t];
  }
  e.reducing = bucket;
  e.reducing_generation = generation;
  e.written = 0;
  return true;
}

// Writes the sum into one slot after the other, then publishes that this slice is done.
bool World::Reduce(int rank) {
  Engine& e = engine_[rank];
  Segment& segment = segment_[e.reducing_generation];
  if (e.written < n_) {
    segment.slot[e.written++][e.reducing][rank] = e.sum;
    return true;
  }
  segment.done[rank][e.reducing] = e.sum.step + 1;
  e.reduced[e.reducing_generation][e.reducing] = e.sum.step + 1;
  e.reducing = -1;
  return true;
}

int World::MinDone(int generation, int bucket) const {
  int least = kNever;
  for (int r = 0; r < n_; ++r) least = std::min(least, segment_[generation].done[r][bucket]);
  return least;
}

bool World::Complete(int rank, int generation, int bucket) {
  int& completed = engine_[rank].completed[generation][bucket];
  const int done = options_.publish_early ? segment_[generation].done[rank][bucket]
                                          : MinDone(generation, bucket);
  if (done <= completed) return false;
  Check(completed == 0 || done == completed + 1, "a result was overwritten before it was read");
  completed = done;
  return true;
}

bool World::ConsumeLog(int rank) {
  Engine& e = engine_[rank];
  const LogEntry& entry = log_[e.cursor % kIds];
  if (entry.tag < e.cursor + 1) return false;
  Check(entry.tag == e.cursor + 1, "an entry of the log was missed");
  if (static_cast<int>(log_order_.size()) == e.cursor) log_order_.push_back(entry.id);
  Check(log_order_[e.cursor] == entry.id, "the log was consumed in different orders");
  ++e.cursor;
  Check(++named_done_[rank][entry.id] <= occurrences_[rank][entry.id],
        "an operation ran before it was submitted");
  return true;
}

// Position q uses the cell of q's parity; the signature travels with the payload.
bool World::UnnamedLane(int rank) {
  Engine& e = engine_[rank];
  const int q = e.cells_read;
  if (e.cells_written == q) {
    const User& u = user_[rank];
    const Operation* mine = nullptr;
    for (size_t i = 0; i < operations_.size() && mine == nullptr; ++i) {
      if (!operations_[i].named && operations_[i].position == q) mine = &operations_[i];
    }
    if (mine == nullptr || mine->round > u.step) return false;
    if (mine->round == u.step) {  // submitted yet?
      if (u.at == At::kBegin || u.at == At::kJoined) return false;
      const int item = kTensors + static_cast<int>(mine - operations_.data());
      const auto end = u.script.begin() + static_cast<std::ptrdiff_t>(u.next);
      if (std::find(u.script.begin(), end, item) == end) return false;
    }
    for (int r = 0; r < n_; ++r)
      Check(engine_[r].cells_read >= q - 1, "a cell was overwritten unread");
    cell_[rank][q % 2] = {q + 1, mine->signature[rank]};
    e.cells_written = q + 1;
    return true;
  }
  bool same = true;
  for (int r = 0; r < n_; ++r) {
    const Cell& cell = cell_[r][q % 2];
    if (cell.seq < q + 1) return false;
    Check(cell.seq == q + 1, "a cell was overwritten unread");
    same = same && cell.signature == cell_[0][q % 2].signature;
  }
  if (unnamed_outcome_[q] < 0) unnamed_outcome_[q] = same;
  Check(unnamed_outcome_[q] == static_cast<int>(same), "ranks disagree about a mismatch");
  e.cells_read = q + 1;
  return true;
}

// ---- Plan switch.

bool World::SwitchIsOver() const {
  const Segment& segment = segment_[generation_];
  for (int r = 0; r < n_; ++r) {
    for (int k = 0; k < Buckets(generation_) && generation_ > 0; ++k) {
      if (segment.arrived[r][k] <= segment.first_step) return false;
    }
  }
  return true;
}

bool World::Propose() {
  if (generation_ + 1 >= kMaxGenerations) return false;
  if (!options_.propose_early) {
    if (!SwitchIsOver()) return false;
    // The old generation's memory is freed now: nobody may need it any more.
    for (int r = 0; r < n_; ++r)
      Check(user_[r].generation == generation_, "a rank still uses a plan that was freed");
  }
  proposing_ = true;
  answers_ = latest_ = 0;
  for (int r = 0; r < n_; ++r) engine_[r].inbox.push_back({Message::kPrepare, 0});
  return true;
}

bool World::Receive(int rank) {
  Engine& e = engine_[rank];
  const User& u = user_[rank];
  if (e.answer >= 0) {  // the promise is made before the answer leaves
    e.limit = e.answer + options_.promise;
    latest_ = std::max(latest_, std::exchange(e.answer, -1));
    if (++answers_ < n_) return true;
    const bool cancel = Random(4) == 0;  // out of memory somewhere
    const int step = latest_ + options_.slack;
    for (int r = 0; r < n_; ++r) {
      engine_[r].inbox.push_back({cancel ? Message::kCancel : Message::kSwitch, step});
    }
    if (!cancel) {
      segment_[++generation_].first_step = step;
      ++switches_;
    }
    proposing_ = false;
    return true;
  }
  const Message message = e.inbox.front();
  e.inbox.erase(e.inbox.begin());
  switch (message.kind) {
    case Message::kPrepare: {
      // The first step in which this rank has published nothing.
      int next = segment_[u.generation].first_step;
      for (int k = 0; k < Buckets(u.generation); ++k) {
        next = std::max(next, segment_[u.generation].arrived[rank][k]);
      }
      e.answer = next;
      break;
    }
    case Message::kSwitch:
      Check(e.switch_at == kNever, "a switch was announced before the last one was over");
      e.switch_at = message.step;
      e.limit = kNever;
      break;
    case Message::kCancel:
      e.limit = kNever;
      break;
  }
  return true;
}

// ---- Settlement: the lowest live rank waits until nobody else writes, looks once, and says what
// is complete.

bool World::Settle(int rank) {
  if (has_verdict_ || options_.act_on_own_reading) return false;
  Engine& e = engine_[rank];
  if (e.has_snapshot) {
    verdict_ = e.snapshot;  // by CAS: the first one stays
    has_verdict_ = true;
    return true;
  }
  if (lost_[rank]) return false;
  for (int r = 0; r < n_; ++r) {
    const bool gone = dead_[r] || lost_[r];
    if (r < rank && !gone) return false;
    if (!gone && !engine_[r].frozen) return false;
  }
  for (int g = 0; g < kMaxGenerations; ++g) {
    for (int k = 0; k < Buckets(g); ++k) e.snapshot[g][k] = MinDone(g, k);
  }
  e.has_snapshot = true;
  return true;
}

}  // namespace ronde::model
