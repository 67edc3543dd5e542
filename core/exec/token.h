// Token: the right to step an engine. A mutex with a name, so that Clang checks who holds it.
//
// Whoever waits for an operation tries to take it and steps the engine; the progress thread, when
// it is rung, sleeps in the mutex until it is released.
#pragma once

#include <mutex>

#if defined(__clang__)
#define RONDE_CAPABILITY(x) __attribute__((capability(x)))
#define RONDE_ACQUIRE(...) __attribute__((acquire_capability(__VA_ARGS__)))
#define RONDE_RELEASE(...) __attribute__((release_capability(__VA_ARGS__)))
#define RONDE_TRY_ACQUIRE(...) __attribute__((try_acquire_capability(__VA_ARGS__)))
#define RONDE_REQUIRES(...) __attribute__((requires_capability(__VA_ARGS__)))
#define RONDE_GUARDED_BY(x) __attribute__((guarded_by(x)))
#define RONDE_NO_THREAD_SAFETY_ANALYSIS __attribute__((no_thread_safety_analysis))
#else
#define RONDE_CAPABILITY(x)
#define RONDE_ACQUIRE(...)
#define RONDE_RELEASE(...)
#define RONDE_TRY_ACQUIRE(...)
#define RONDE_REQUIRES(...)
#define RONDE_GUARDED_BY(x)
#define RONDE_NO_THREAD_SAFETY_ANALYSIS
#endif

namespace ronde {

class RONDE_CAPABILITY("token") Token {
 public:
  void Lock() RONDE_ACQUIRE() { mutex_.lock(); }
  bool TryLock() RONDE_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void Unlock() RONDE_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

}  // namespace ronde
