// Board: the shared memory where the ranks of a host publish what they have and read what the
// others have.
//
// One memfd per group and epoch, made by the coordinator, never reused. Every word has one writer
// unless said otherwise; every word sits on its own 128 bytes where writers differ. Plain data is
// published by a later store to an atomic word.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/limits.h"
#include "core/base/shared_memory.h"
#include "ronde/status.h"

namespace ronde {

inline constexpr size_t kLine = 128;  // two cache lines: the prefetcher fetches pairs
inline constexpr size_t kAbortOffset = kLine;

// Who is at work in a rank's engine; written by the rank, read by whoever wonders whether to ring
// it.
enum class Doze : uint32_t {
  kAwake = 0,   // a thread polls: no ring needed
  kAsleep = 1,  // nobody polls, nobody waits: ring for everything but buckets that no waiter wants
  kWanted = 2,  // nobody polls, a thread is parked in a wait: ring for everything
};

enum class Phase : uint32_t { kJoining = 0, kActive = 1, kLeft = 2 };

// Small operations: one line says "here I am, this is what I mean", and carries the payload.
struct CellHeader {
  std::atomic<uint64_t>
      seq;  // operations posted on this lane; the cell is valid when it equals the reader's
  // 1 while the writer's thread looks at this operation's cells without having said so in its doze:
  // whoever completes the row need not ring it. Part of this line, because both sides touch it
  // anyway.
  std::atomic<uint32_t> polled;
  uint64_t signature;  // of the operation; 0 is poison
  uint64_t hint;       // the writer's wishes for schedule choice; rank 0's is followed
};
inline constexpr size_t kCellPayload = 32768;
inline constexpr size_t kCellStride =
    (sizeof(CellHeader) + kCellPayload + kLine - 1) / kLine * kLine;
inline constexpr size_t kDescriptorBytes = 8192;

// Ids of named operations. Those below kCachedIds keep their name for the epoch; the others serve
// one operation each.
inline constexpr uint32_t kCachedIds = 4096;
inline constexpr uint32_t kMaxIds = 8192;
inline constexpr uint32_t kLogSlots = 2 * kMaxIds;  // an id has one unconsumed entry at most
static_assert((kLogSlots & (kLogSlots - 1)) == 0);

inline constexpr int kNumLanes = 2;
inline constexpr int kUnnamedLane = 0;
inline constexpr int kNamedLane = 1;

// A view of the mapping, with its layout. Thread-safe as the words themselves are. Copies share the
// mapping.
class Board {
 public:
  // Makes the memfd. `staging_bytes`: what the shared-memory backend gets per lane (touched only
  // when used).
  static Result<UniqueFd> Create(int num_ranks, size_t staging_bytes, uint64_t epoch,
                                 const std::string& job);
  // Maps it. kInternal when it is not a board of this version and job.
  static Result<Board> Attach(int fd, MappingCache* mappings, const std::string& job);

  int num_ranks() const { return num_ranks_; }
  uint64_t epoch() const { return epoch_; }

  // Abort: 0, or one Verdict packed. Written once by compare-and-swap from 0, by anybody; never
  // cleared.
  std::atomic<uint64_t>& abort_word() const {
    return *reinterpret_cast<std::atomic<uint64_t>*>(base_ + kAbortOffset);
  }
  // Why; written by rank r before it wins the abort word.
  char* detail(int r) const;
  static constexpr size_t kDetailBytes = 1024;

  std::atomic<uint32_t>& alive(int r) const;  // robust futex of r's watch thread
  std::atomic<uint32_t>& phase(int r) const;  // Phase
  std::atomic<uint32_t>& process_id(int r) const;
  std::atomic<uint32_t>& doze(int r) const;  // Doze

  // Order of named operations (core/control/order_log.h).
  std::atomic<uint32_t>& occurrences(int r, uint32_t id) const;
  std::atomic<uint32_t>& claim(uint32_t id) const;  // compare-and-swap by anybody
  std::atomic<uint64_t>& log_slot(uint64_t position) const;
  std::atomic<uint64_t>& log_tail() const;  // fetch_add by anybody
  std::atomic<uint64_t>& log_cursor(int r) const;

  // Cells, double buffered by the parity of seq.
  CellHeader* cell(int lane, uint64_t seq, int r) const {
    return reinterpret_cast<CellHeader*>(lane_base(lane) + cell_index(seq, r) * kCellStride);
  }
  std::byte* payload(int lane, uint64_t seq, int r) const {
    return reinterpret_cast<std::byte*>(cell(lane, seq, r)) + sizeof(CellHeader);
  }
  std::byte* descriptor(int lane, uint64_t seq, int r) const {  // kDescriptorBytes
    return lane_base(lane) + 2 * static_cast<size_t>(num_ranks_) * kCellStride +
           cell_index(seq, r) * kDescriptorBytes;
  }

  std::byte* staging(int lane) const;
  size_t staging_bytes() const { return staging_bytes_; }

 private:
  struct Member;
  struct Offsets;
  Member* member(int r) const;
  std::byte* lane_base(int lane) const {
    return base_ + lanes_ + static_cast<size_t>(lane) * lane_stride_;
  }
  size_t cell_index(uint64_t seq, int r) const {
    return (seq & 1) * static_cast<size_t>(num_ranks_) + static_cast<size_t>(r);
  }

  std::shared_ptr<Mapping> mapping_;
  std::byte* base_ = nullptr;
  int num_ranks_ = 0;
  uint64_t epoch_ = 0;
  size_t staging_bytes_ = 0;
  size_t occurrences_ = 0;
  size_t claims_ = 0;
  size_t log_ = 0;
  size_t lanes_ = 0;
  size_t lane_stride_ = 0;
};

}  // namespace ronde
