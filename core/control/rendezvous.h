// Rendezvous: how the ranks of a job on one host find each other and get the board.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/shared_memory.h"
#include "core/control/board.h"
#include "core/control/channel.h"
#include "core/control/doorbell.h"
#include "ronde/config.h"
#include "ronde/status.h"
#include "ronde/work.h"

namespace ronde {

// What a rank holds after it has met the others.
struct Membership {
  Board board;
  std::vector<UniqueFd> eventfds;  // of every rank, in rank order
  // Rank 0: channels[r] to rank r (null at 0). Others: channels[0] to rank 0, the rest null.
  std::vector<std::unique_ptr<Channel>> channels;
  int usable_cores = 1;  // by all ranks together, the same on every rank
};

// Rank 0 listens at config.rendezvous, the others connect; everyone says Hello; when all have, rank
// 0 makes the board and sends it. Blocks. Refuses peers of another user, and fails on every rank
// with Mismatch when version, job, size or rules differ, with kTimeout (naming the missing ranks)
// after RONDE_START_TIMEOUT_S.
Result<Membership> Meet(const Config& config, uint64_t rules_hash, MappingCache* mappings,
                        const WaitOptions& options);

}  // namespace ronde
