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
// allocator gives them (that is what PyTorch's tensors have), together more than the caches. Owned
// by one benchmark; any thread.
class RotatingBuffers {
 public:
  // Buffers of `bytes`, all zeros the first time. Keeps the memory where it is large enough: pages
  // cost a second per GiB.
  void Resize(int64_t bytes);

  int64_t copies() const { return copies_; }
  // Buffer number i modulo copies().
  void* at(int64_t i) const { return memory_.get() + (i % copies_) * stride_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  int64_t stride_ = 0;
  int64_t copies_ = 1;
  int64_t capacity_ = 0;
  std::unique_ptr<std::byte, Free> memory_;
};

// What an operation out of place works on. Kept over the sizes of a sweep.
struct BufferPair {
  RotatingBuffers inputs;
  RotatingBuffers outputs;
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
