#include "core/control/doorbell.h"

#include <unistd.h>

namespace ronde {

void Doorbell::Ring(int r, bool only_wanted) const {
  const auto doze = static_cast<Doze>(board_.doze(r).load(std::memory_order_seq_cst));
  if (doze == Doze::kAwake) return;
  if (only_wanted && doze != Doze::kWanted) return;
  Write(r);
}

void Doorbell::RingOthers(bool only_wanted) const {
  for (int r = 0; r < board_.num_ranks(); ++r) {
    if (r != rank_) Ring(r, only_wanted);
  }
}

void Doorbell::RingAll() const {
  for (int r = 0; r < board_.num_ranks(); ++r) Write(r);
}

void Doorbell::Drain() const {
  uint64_t count;
  [[maybe_unused]] const ssize_t bytes = read(own_fd(), &count, sizeof(count));
}

void Doorbell::Write(int r) const {
  // An eventfd's counter cannot overflow in practice; a full one is readable anyway.
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t bytes =
      write(eventfds_[static_cast<size_t>(r)].get(), &one, sizeof(one));
  rings_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace ronde
