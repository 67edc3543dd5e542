// Concat: several tensors seen as one run of bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ronde/tensor.h"

namespace ronde::shm {

// Borrows the views; for the duration of one collective.
class Concat {
 public:
  Concat() = default;
  explicit Concat(std::span<const TensorView> views) : views_(views) {
    for (const TensorView& view : views_) bytes_ += view.size_bytes();
  }

  int64_t bytes() const { return bytes_; }

  // Calls f(address, bytes, offset from `begin`) for each contiguous piece of [begin, begin +
  // bytes).
  template <typename F>
  void ForEach(int64_t begin, int64_t bytes, F&& f) const {
    int64_t done = 0;
    for (const TensorView& view : views_) {
      if (done == bytes) return;
      const int64_t size = view.size_bytes();
      if (begin >= size) {
        begin -= size;
        continue;
      }
      const int64_t piece = std::min(size - begin, bytes - done);
      if (piece > 0) f(static_cast<std::byte*>(view.data) + begin, piece, done);
      done += piece;
      begin = 0;
    }
  }

 private:
  std::span<const TensorView> views_;
  int64_t bytes_ = 0;
};

}  // namespace ronde::shm
