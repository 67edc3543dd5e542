// Staging: a lane's shared memory for large private buffers: one counter per rank, and per rank a
// ring of slots.
//
// A slot of rank r holds what r offers to the others (its stage: one part per receiver) and what r
// has reduced for them (its result).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/control/board.h"

namespace ronde::shm {

class Staging {
 public:
  Staging(const Board& board, int lane)
      : base_(board.staging(lane)),
        num_ranks_(board.num_ranks()),
        rank_bytes_((static_cast<int64_t>(board.staging_bytes()) - HeaderBytes(num_ranks_)) /
                    num_ranks_ / kUnit * kUnit) {}

  // Steps that rank r has published on this lane; W = r.
  std::atomic<uint64_t>& progress(int r) const { return line(r)->progress; }
  // Words of the placement probe; W = r.
  std::atomic<uint64_t>& probe(int r) const { return line(r)->probe; }

  // Cuts every rank's memory into slots of a stage and a result; returns how many there are, at
  // most `wanted` and at least 2 (chunks are bounded so that two always fit).
  int64_t Cut(int64_t stage_bytes, int64_t result_bytes, int64_t wanted) {
    stage_bytes_ = RoundUp(stage_bytes);
    slot_bytes_ = stage_bytes_ + RoundUp(result_bytes);
    return std::min(wanted, rank_bytes_ / slot_bytes_);
  }
  std::byte* stage(int r, int64_t slot) const {
    return base_ + HeaderBytes(num_ranks_) + r * rank_bytes_ + slot * slot_bytes_;
  }
  std::byte* result(int r, int64_t slot) const { return stage(r, slot) + stage_bytes_; }
  // Makes the first `slots` slots of rank r present in this process, without changing them.
  void Touch(int r, int64_t slots) const {
    constexpr int64_t kPage = 4096;
    for (int64_t at = 0; at < slots * slot_bytes_; at += kPage) {
      reinterpret_cast<std::atomic<uint8_t>*>(stage(r, 0) + at)
          ->fetch_or(0, std::memory_order_relaxed);
    }
  }
  int64_t rank_bytes() const { return rank_bytes_; }

 private:
  struct Line {
    alignas(kLine) std::atomic<uint64_t> progress;
    alignas(kLine) std::atomic<uint64_t> probe;
  };
  static constexpr int64_t kUnit = 4096;
  static int64_t RoundUp(int64_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }
  static int64_t HeaderBytes(int n) { return RoundUp(n * static_cast<int64_t>(sizeof(Line))); }
  Line* line(int r) const { return reinterpret_cast<Line*>(base_) + r; }

  std::byte* base_;
  int num_ranks_;
  int64_t rank_bytes_;
  int64_t stage_bytes_ = 0;
  int64_t slot_bytes_ = 0;
};

}  // namespace ronde::shm
