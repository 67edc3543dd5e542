#include "core/base/recorder.h"

#include <array>
#include <bit>
#include <cstdio>

#include <fmt/format.h>

namespace ronde {

std::string_view HopName(Hop hop) {
  constexpr std::array<std::string_view, 8> kNames = {
      "posted",        "started",        "chunk",       "done",
      "bucket-arrive", "bucket-reduced", "bucket-done", "abort"};
  return kNames[static_cast<size_t>(hop)];
}

Recorder::Recorder(int64_t capacity) {
  if (capacity <= 0) return;
  const uint64_t size = std::bit_ceil(static_cast<uint64_t>(capacity));
  mask_ = size - 1;
  events_ = std::make_unique<Event[]>(size);
}

Status Recorder::Dump(const std::string& path) const {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "we"), std::fclose);
  if (file == nullptr) return Status::FromErrno(fmt::format("writing the recording to '{}'", path));
  // Both clocks since the start give the length of a tick.
  const uint64_t ticks = Ticks() - start_ticks_;
  const double ns_per_tick =
      ticks == 0 ? 0 : static_cast<double>(NowNs() - start_ns_) / static_cast<double>(ticks);
  const uint64_t end = next_.load(std::memory_order_acquire);
  const uint64_t size = events_ == nullptr ? 0 : mask_ + 1;
  for (uint64_t at = end > size ? end - size : 0; at < end; ++at) {
    const Event& event = events_[at & mask_];
    if (event.stamp.load(std::memory_order_acquire) != at + 1) continue;
    const uint64_t when = event.ticks.load(std::memory_order_acquire);
    const uint64_t what = event.what.load(std::memory_order_acquire);
    const uint64_t value = event.value.load(std::memory_order_acquire);
    if (event.stamp.load(std::memory_order_relaxed) != at + 1) continue;  // overwritten meanwhile
    const auto ns = static_cast<int64_t>(static_cast<double>(when - start_ticks_) * ns_per_tick);
    fmt::print(file.get(), "{{\"ns\": {}, \"hop\": \"{}\", \"id\": {}, \"value\": {}}}\n", ns,
               HopName(static_cast<Hop>(what >> 32)), what & 0xffffffff, value);
  }
  if (std::fflush(file.get()) != 0) {
    return Status::FromErrno(fmt::format("writing the recording to '{}'", path));
  }
  return Status::Ok();
}

}  // namespace ronde
