// A program for LaunchEndTest: rank 1 is killed while it holds a robust mutex and much memory; rank
// 0 notices by the mutex, long before the kernel has taken rank 1 apart, and exits with status 5.
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace {

struct Shared {
  pthread_mutex_t mutex;
  std::atomic<int> held;  // 1: rank 1 has the mutex
};

void DieHolding(Shared* shared) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&shared->mutex, &attributes);
  pthread_mutex_lock(&shared->mutex);
  constexpr size_t kBytes = 256 << 20;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) _exit(90);
  madvise(memory, kBytes, MADV_NOHUGEPAGE);  // small pages take longest
  memset(memory, 1, kBytes);
  shared->held.store(1);
  usleep(100'000);  // rank 0 waits by now, most likely; the outcome does not depend on it
  kill(getpid(), SIGKILL);
}

}  // namespace

// Arguments: a file that both ranks map.
int main(int, char** argv) {
  const int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(Shared)) != 0) return 91;
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return 92;
  auto* shared = static_cast<Shared*>(memory);
  if (strcmp(getenv("RANK"), "1") == 0) DieHolding(shared);
  while (shared->held.load() == 0) usleep(1000);
  _exit(pthread_mutex_lock(&shared->mutex) == EOWNERDEAD ? 5 : 93);
}
