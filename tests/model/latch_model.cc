#include "tests/model/latch_model.h"

#include <algorithm>

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

}  // namespace ronde::model
