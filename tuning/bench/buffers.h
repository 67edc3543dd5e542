// Memory that benchmarks run on: rotated through, so that caches do not flatter a candidate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "ronde/status.h"

namespace ronde::bench {

// How many buffers of `bytes` to go through so that they exceed the caches, at most `max_copies`.
int64_t RotationCopies(int64_t bytes, int64_t max_copies);

// Private memory for buffers of one size, one after the other, 64-byte aligned, in pages as the
// allocator gives them (that is what PyTorch's tensors have). Owned by one benchmark; any thread.
class RotatingBuffers {
 public:
  // `max_copies` as for RotationCopies. Every page is written.
  RotatingBuffers(int64_t bytes, int64_t max_copies);

  int64_t copies() const { return copies_; }
  // Buffer number i modulo copies().
  void* at(int64_t i) const { return memory_.get() + (i % copies_) * stride_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  int64_t stride_;
  int64_t copies_;
  std::unique_ptr<std::byte, Free> memory_;
};

// Anonymous memory that several processes of one user map. Nothing of it is left when they end,
// however they end. Owned by one benchmark per process; any thread.
class SharedMemory {
 public:
  // Zeros.
  static Result<SharedMemory> Create(int64_t bytes);
  // Maps what another process created; `path` is its path(), the creator being alive.
  static Result<SharedMemory> Open(const std::string& path);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory();

  std::byte* data() const { return data_; }
  int64_t size_bytes() const { return bytes_; }
  // /proc/PID/fd/N: valid for processes of the same user as long as this object lives.
  std::string path() const;

 private:
  static Result<SharedMemory> Map(int fd, int64_t bytes);
  SharedMemory(int fd, std::byte* data, int64_t bytes) : fd_(fd), data_(data), bytes_(bytes) {}

  int fd_;
  std::byte* data_;
  int64_t bytes_;
};

}  // namespace ronde::bench
