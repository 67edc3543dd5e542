#include "core/control/order_log.h"

namespace ronde {
namespace {

// A slot: (position + 1) << 32 | last-of-its-batch << 24 | id. Position + 1 tells a fresh entry
// from one of an earlier lap.
constexpr uint64_t kLast = uint64_t{1} << 24;
constexpr uint64_t kIdMask = kLast - 1;

bool Reached(uint32_t count, uint32_t wanted) {
  return static_cast<int32_t>(count - wanted) >= 0;
}

}  // namespace

void OrderLog::Announce(uint32_t id) {
  board_.occurrences(rank_, id).store(++counts_[id], std::memory_order_seq_cst);
}

bool OrderLog::Complete(uint32_t id) const {
  const uint32_t count = counts_[id];
  if (board_.claim(id).load(std::memory_order_seq_cst) != count - 1) return false;
  for (int r = 0; r < board_.num_ranks(); ++r) {
    if (!Reached(board_.occurrences(r, id).load(std::memory_order_seq_cst), count)) return false;
  }
  return true;
}

bool OrderLog::Claim(uint32_t id) {
  uint32_t expected = counts_[id] - 1;
  return board_.claim(id).compare_exchange_strong(expected, counts_[id], std::memory_order_seq_cst);
}

void OrderLog::Append(std::span<const uint32_t> batch) {
  const uint64_t first = board_.log_tail().fetch_add(batch.size(), std::memory_order_seq_cst);
  for (size_t i = 0; i < batch.size(); ++i) {
    const uint64_t position = first + i;
    const uint64_t last = i + 1 == batch.size() ? kLast : 0;
    board_.log_slot(position).store((position + 1) << 32 | last | batch[i],
                                    std::memory_order_seq_cst);
  }
}

bool OrderLog::Next(std::vector<uint32_t>* batch) {
  batch->clear();
  for (uint64_t position = cursor_;; ++position) {
    const uint64_t slot = board_.log_slot(position).load(std::memory_order_seq_cst);
    if (slot >> 32 != ((position + 1) & 0xffffffff)) return false;  // the batch is not complete yet
    batch->push_back(static_cast<uint32_t>(slot & kIdMask));
    if ((slot & kLast) == 0) continue;
    cursor_ = position + 1;
    board_.log_cursor(rank_).store(cursor_, std::memory_order_seq_cst);
    return true;
  }
}

std::vector<int> OrderLog::Missing(uint32_t id) const {
  std::vector<int> missing;
  for (int r = 0; r < board_.num_ranks(); ++r) {
    if (!Reached(board_.occurrences(r, id).load(std::memory_order_seq_cst), counts_[id])) {
      missing.push_back(r);
    }
  }
  return missing;
}

}  // namespace ronde
