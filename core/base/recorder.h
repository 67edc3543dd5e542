// Recorder: a ring of what one rank did last, always on; read when something went wrong.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/clock.h"
#include "ronde/status.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace ronde {

// The stations of an operation and of a bucket, and the end of the group.
enum class Hop : uint8_t {
  kPosted,         // this rank's cell is written
  kStarted,        // every rank's cell is there and agrees; the backend has it
  kChunk,          // the backend published a chunk
  kDone,           // the work is complete
  kBucketArrive,   // this rank's contribution to a bucket is in place
  kBucketReduced,  // this rank's slice is in every slot
  kBucketDone,     // every rank's slice is
  kAbort,          // the group has ended
};
// "posted", "bucket-arrive" and so on.
std::string_view HopName(Hop hop);

// Owned by a Runtime. Record may be called from any thread, at the price of a counter read and an
// atomic addition. Events older than the capacity are overwritten.
class Recorder {
 public:
  // Keeps at least `capacity` events (a power of two of them); 0: Record does nothing.
  explicit Recorder(int64_t capacity);

  // `id`: of the operation or bucket; `value`: what the hop is about (a number, bytes, a code).
  void Record(Hop hop, uint32_t id, uint64_t value) {
    if (events_ == nullptr) return;
    const uint64_t at = next_.fetch_add(1, std::memory_order_relaxed);
    Event& event = events_[at & mask_];
    // 0 while it is being written, so that a dump at the same time leaves it out; release stores
    // keep the rest behind it (and no fence, which a race detector would not follow).
    event.stamp.store(0, std::memory_order_relaxed);
    event.ticks.store(Ticks(), std::memory_order_release);
    event.what.store(static_cast<uint64_t>(hop) << 32 | id, std::memory_order_release);
    event.value.store(value, std::memory_order_release);
    event.stamp.store(at + 1, std::memory_order_release);
  }

  // Writes what is in the ring, oldest first, one JSON object a line: ns since this Recorder was
  // made, hop, id, value. May run beside Record. Internal when the file cannot be written.
  Status Dump(const std::string& path) const;

 private:
  struct Event {
    std::atomic<uint64_t> stamp{0};  // position in the recording + 1
    std::atomic<uint64_t> ticks{0};
    std::atomic<uint64_t> what{0};  // hop and id
    std::atomic<uint64_t> value{0};
  };

  // Of the time-stamp counter where there is one, which is faster to read than the clock.
  static uint64_t Ticks() {
#if defined(__x86_64__)
    return __rdtsc();
#else
    return static_cast<uint64_t>(NowNs());
#endif
  }

  const int64_t start_ns_ = NowNs();
  const uint64_t start_ticks_ = Ticks();
  uint64_t mask_ = 0;
  std::unique_ptr<Event[]> events_;  // null: off
  std::atomic<uint64_t> next_{0};
};

}  // namespace ronde
