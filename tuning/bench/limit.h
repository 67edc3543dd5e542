// The limit: what the memory allows for an operation's reads and writes, measured, with every rank
// active, on the same footprint. No communication, no arithmetic worth naming.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "ronde/request.h"
#include "ronde/status.h"
#include "tuning/bench/buffers.h"

namespace ronde::bench {

// Which memory an operation works on; "private" and "arena".
enum class Buffers : uint8_t { kPrivate, kArena };
std::string_view BuffersName(Buffers buffers);

// Sets are few: an arena benchmark goes through at most this many of them.
inline constexpr int64_t kMaxArenaCopies = 4;

// Meeting point of the ranks at the beginning of a SharedMemory of zeros. Used by each rank's
// benchmark thread; lives as long as the memory.
class SpinBarrier {
 public:
  SpinBarrier(const SharedMemory& memory, int ranks);
  static constexpr int64_t kBytes = 128;  // what it occupies

  // Blocks until all ranks are there: spins, or yields where ranks share cores. False when one has
  // not come within a minute.
  bool Wait();

 private:
  struct State {
    alignas(64) std::atomic<uint32_t> arrived;
    alignas(64) std::atomic<uint32_t> generation;
  };
  static_assert(sizeof(State) == kBytes);

  State* const state_;
  const uint32_t ranks_;
  const bool oversubscribed_;
};

// Bytes of shared memory that LimitKernel needs for these arguments.
int64_t LimitSharedBytes(Buffers buffers, int64_t bytes, int ranks);

// One rank's part of a limit. Used by one thread; holds no memory.
//
//   private, one rank of n, S the row's size:
//     allreduce, allgather, alltoall, broadcast   reads S, writes S
//     reducescatter                               reads S, writes S / n
//   arena (allreduce): reads and writes its n-th of the n ranks' slots, in place, in one pass
class LimitKernel {
 public:
  // `shared` has at least LimitSharedBytes; its first bytes are the barrier's.
  // `memory` is for private buffers and must outlive it.
  LimitKernel(Buffers buffers, OpKind kind, int64_t bytes, BufferPair* memory,
              const SharedMemory& shared, int rank, int ranks);

  // Iteration i: buffers rotate.
  void Run(int64_t i);

 private:
  void RunArena(int64_t i);

  const Buffers buffers_;
  const OpKind kind_;
  const int64_t bytes_;
  const int rank_;
  const int ranks_;
  std::byte* const slots_;
  int64_t slot_copies_ = 1;
  BufferPair* const memory_;
};

}  // namespace ronde::bench
