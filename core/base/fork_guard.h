// ForkGuard: knows whether this is still the process that made it.
#pragma once

#include <sys/mman.h>

#include <cstdint>

namespace ronde {

// One load to ask. The kernel clears the page in forked children. Where it cannot (before
// Linux 4.14), the child is not noticed.
class ForkGuard {
 public:
  ForkGuard() {
    void* page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    madvise(page, kPage, MADV_WIPEONFORK);
    mark_ = static_cast<volatile uint32_t*>(page);
    *mark_ = 1;
  }
  ~ForkGuard() {
    if (mark_ != nullptr) munmap(const_cast<uint32_t*>(mark_), kPage);
  }
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  bool forked() const { return mark_ != nullptr && *mark_ == 0; }

 private:
  static constexpr size_t kPage = 4096;
  volatile uint32_t* mark_ = nullptr;
};

}  // namespace ronde
