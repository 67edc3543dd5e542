#include "tuning/bench/buffers.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/base/log.h"
#include "tuning/bench/system.h"

namespace ronde::bench {
namespace {

constexpr int64_t kAlignment = 64;

int64_t RoundUp(int64_t bytes, int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

int64_t RotationCopies(int64_t bytes, int64_t max_copies) {
  const int64_t stride = std::max(RoundUp(bytes, kAlignment), kAlignment);
  return std::clamp((LastLevelCacheBytes() + stride - 1) / stride, int64_t{1}, max_copies);
}

void RotatingBuffers::Resize(int64_t bytes) {
  stride_ = std::max(RoundUp(bytes, kAlignment), kAlignment);
  copies_ = RotationCopies(bytes, INT64_MAX);
  const int64_t total = stride_ * copies_;
  if (total <= capacity_) return;
  memory_.reset();
  memory_.reset(static_cast<std::byte*>(
      std::aligned_alloc(static_cast<size_t>(kAlignment), static_cast<size_t>(total))));
  RONDE_CHECK(memory_ != nullptr);
  // Zeros: sums of them stay ordinary numbers, however often a benchmark adds them up.
  std::fill_n(memory_.get(), total, std::byte{0});
  capacity_ = total;
}

Result<SharedMemory> SharedMemory::Create(int64_t bytes) {
  const int fd = memfd_create("ronde-bench", MFD_CLOEXEC);
  if (fd < 0) return Status::FromErrno("memfd_create for the benchmark");
  if (ftruncate(fd, bytes) != 0) {
    const Status status = Status::FromErrno(fmt::format("{} bytes of shared memory", bytes));
    close(fd);
    return status;
  }
  return Map(fd, bytes);
}

Result<SharedMemory> SharedMemory::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat info = {};
  if (fd < 0 || fstat(fd, &info) != 0) {
    const Status status = Status::FromErrno(path);
    if (fd >= 0) close(fd);
    return status;
  }
  return Map(fd, info.st_size);
}

Result<SharedMemory> SharedMemory::Map(int fd, int64_t bytes) {
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    const Status status = Status::FromErrno(fmt::format("mapping {} shared bytes", bytes));
    close(fd);
    return status;
  }
  return SharedMemory(fd, static_cast<std::byte*>(data), bytes);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(other.bytes_) {}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
  if (fd_ >= 0) close(fd_);
}

std::string SharedMemory::path() const {
  return fmt::format("/proc/{}/fd/{}", getpid(), fd_);
}

}  // namespace ronde::bench
