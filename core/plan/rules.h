// RuleTable: which backend and schedule carries out which operation. Data, not code: defaults, the
// user's overrides and tests use one syntax, and all ranks compare the table's hash when they meet.
//
//   allreduce:0-32K=shm/oneshot; allreduce:32K-=shm/staged@1M
//
// A rule is KIND:LOW-HIGH=BACKEND/SCHEDULE[@CHUNK]; KIND may be *; an operation of exactly HIGH
// bytes still matches; no HIGH means no bound. Later rules win. Sizes are bytes of one rank's
// largest input.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ronde/request.h"
#include "ronde/status.h"

namespace ronde {

enum class Schedule : uint8_t {
  kOneShot,  // everybody posts its whole input in a cell and reads the others': one synchronisation
  kStaged,   // by chunks through shared memory; kCached or kStreamed, as the placement of the cores
             // asks for
  kCached,   // staged in a small ring that stays in the caches
  kStreamed,  // staged by non-temporal stores in a ring larger than the caches
};
std::string_view ScheduleName(Schedule schedule);

struct Rule {
  OpKind kind = OpKind::kAllreduce;
  int64_t low_bytes = 0;
  int64_t high_bytes = 0;  // inclusive
  std::string backend;
  Schedule schedule = Schedule::kStaged;
  int64_t chunk_bytes = 0;  // of all ranks together; 0: the backend's own
};

// Constant after construction; any thread.
class RuleTable {
 public:
  // The defaults followed by `overrides`. InvalidArgument names the rule and what is allowed there.
  static Result<RuleTable> Make(std::string_view overrides);

  // The rule for an operation; there always is one.
  const Rule& Find(OpKind kind, int64_t bytes) const;
  // In the syntax above, one rule a line; those that all kinds begin with once, with *.
  std::string ToString() const;
  uint64_t Hash() const;

 private:
  Status Append(std::string_view text);

  std::array<std::vector<Rule>, kNumOpKinds> rules_;  // by kind, later ones win
};

}  // namespace ronde
