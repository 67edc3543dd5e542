// The futex system call, for words in memory that may be shared between processes.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>

namespace ronde {

enum class FutexScope : int { kProcess = FUTEX_PRIVATE_FLAG, kHost = 0 };

// Sleeps while *word == expected, at most timeout_ns (negative: for ever). May return spuriously.
// False: timed out.
bool FutexWait(std::atomic<uint32_t>* word, uint32_t expected, int64_t timeout_ns,
               FutexScope scope);
// Wakes up to `count` sleepers on *word.
void FutexWake(std::atomic<uint32_t>* word, int count, FutexScope scope);

}  // namespace ronde
