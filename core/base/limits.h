// Bounds that several parts of Ronde must agree on.
#pragma once

namespace ronde {

// One message carries the board and an eventfd of every rank, and the kernel allows 253 descriptors
// in it.
inline constexpr int kMaxLocalRanks = 248;

}  // namespace ronde
