// What the orchestrator of `bench peers` and the rank processes of its candidates say to each
// other.
//
// Each rank connects to its group's Unix socket, says Hello, and then sleeps in a read (it never
// spins, so that idle candidates do not disturb the one that is measured) until a Command comes;
// every command gets one Reply. Both ends run on one machine, from one build: plain structs.
#pragma once

#include <cstdint>

#include "tuning/bench/block_plan.h"
#include "tuning/bench/limit.h"

namespace ronde::bench {

enum class CommandKind : int32_t {
  kPrepare = 0,  // allocate for operations of `bytes`, free what was there before
  kRun = 1,      // one block on `buffers` by `plan`; the reply carries plan.samples + 1 time stamps
  kQuit = 2,
};

struct Command {
  CommandKind kind = CommandKind::kQuit;
  Buffers buffers = Buffers::kPrivate;
  int64_t bytes = 0;
  BlockPlan plan;
};

struct Hello {
  int32_t rank = 0;
  int32_t size = 0;
  char version[248] = {};  // of the library that the candidate measures
};

struct Reply {
  int64_t stamps = 0;    // how many int64 follow: NowNs() at the start and after each sample
  char error[248] = {};  // empty: done
};

}  // namespace ronde::bench
