#include "core/base/futex.h"

#include <cerrno>

namespace ronde {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

bool FutexWait(std::atomic<uint32_t>* word, uint32_t expected, int64_t timeout_ns,
               FutexScope scope) {
  timespec timeout;
  timeout.tv_sec = timeout_ns / 1'000'000'000;
  timeout.tv_nsec = timeout_ns % 1'000'000'000;
  const long result = syscall(SYS_futex, word, FUTEX_WAIT | static_cast<int>(scope), expected,
                              timeout_ns < 0 ? nullptr : &timeout, nullptr, 0);
  return !(result == -1 && errno == ETIMEDOUT);
}

void FutexWake(std::atomic<uint32_t>* word, int count, FutexScope scope) {
  syscall(SYS_futex, word, FUTEX_WAKE | static_cast<int>(scope), count, nullptr, nullptr, 0);
}

}  // namespace ronde
