// The engines of the model: they reduce, complete, consume, negotiate, settle.
#include "tests/model/latch_model.h"

#include <algorithm>
#include <utility>

namespace ronde::model {

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
