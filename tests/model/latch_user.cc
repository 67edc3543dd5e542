// The users of the model: hooks, operations, waiting.
#include "tests/model/latch_model.h"

#include <algorithm>
#include <utility>

namespace ronde::model {

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

}  // namespace ronde::model
