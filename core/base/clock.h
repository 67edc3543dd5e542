// Monotonic time. Every deadline of Ronde is a NowNs() value.
#pragma once

#include <cstdint>
#include <ctime>

namespace ronde {

// Nanoseconds of CLOCK_MONOTONIC; comparable between the processes of one host.
inline int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

inline constexpr int64_t kNsPerUs = 1'000;
inline constexpr int64_t kNsPerMs = 1'000'000;
inline constexpr int64_t kNsPerS = 1'000'000'000;

}  // namespace ronde
