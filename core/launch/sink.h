// Sink: writes to the launcher's stdout or stderr without ever blocking the launcher.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/base/fd.h"

namespace ronde::launch {

// A reader that does not read (a paused pager) must not delay Ctrl-C, so what does not fit now is
// kept. The descriptor's flags are left alone, because other programs share them: pipes and
// terminals are opened once more. Owned by the running job; one thread.
class Sink {
 public:
  // Borrows `fd`, which must stay open.
  explicit Sink(int fd);

  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  // Queues; dropped when nobody can read it any more.
  void Append(std::string_view text);
  // Writes what fits now.
  void Flush();

  // What waits to be written; poll for POLLOUT on poll_fd() and Flush.
  size_t pending_bytes() const { return queue_.size() - written_; }
  int poll_fd() const;
  // The reader has gone, or the disk is full.
  bool closed() const { return closed_; }
  bool is_terminal() const { return is_terminal_; }

 private:
  enum class Way { kNonBlocking, kSocket, kFile, kCautious };

  ssize_t Write(const char* data, size_t size);

  const int fd_;
  UniqueFd reopened_;
  Way way_ = Way::kFile;
  bool is_terminal_ = false;
  bool closed_ = false;
  std::string queue_;
  size_t written_ = 0;  // of queue_
};

}  // namespace ronde::launch
