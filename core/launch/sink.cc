#include "core/launch/sink.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include <fmt/format.h>

namespace ronde::launch {

Sink::Sink(int fd) : fd_(fd), is_terminal_(isatty(fd) != 0) {
  struct stat info = {};
  if (fstat(fd, &info) != 0) {
    closed_ = true;
  } else if (S_ISSOCK(info.st_mode)) {
    way_ = Way::kSocket;
  } else if (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)) {
    reopened_ = UniqueFd(open(fmt::format("/proc/self/fd/{}", fd).c_str(),
                              O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    // Not allowed for another user's terminal (after su).
    way_ = reopened_.valid() ? Way::kNonBlocking : Way::kCautious;
  }
}

int Sink::poll_fd() const {
  return reopened_.valid() ? reopened_.get() : fd_;
}

void Sink::Append(std::string_view text) {
  if (closed_) return;
  if (written_ == queue_.size()) {
    queue_.clear();
    written_ = 0;
  }
  queue_.append(text);
}

void Sink::Flush() {
  while (!closed_ && pending_bytes() > 0) {
    const ssize_t count = Write(queue_.data() + written_, pending_bytes());
    if (count > 0) {
      written_ += static_cast<size_t>(count);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      closed_ = true;
      queue_.clear();
      written_ = 0;
    }
  }
  constexpr size_t kCompact = 1 << 20;
  if (written_ > kCompact) {
    queue_.erase(0, written_);
    written_ = 0;
  }
}

ssize_t Sink::Write(const char* data, size_t size) {
  switch (way_) {
    case Way::kNonBlocking:
      return write(reopened_.get(), data, size);
    case Way::kSocket:
      return send(fd_, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    case Way::kFile:
      return write(fd_, data, size);
    case Way::kCautious:
      break;
  }
  pollfd ready = {fd_, POLLOUT, 0};
  if (poll(&ready, 1, 0) <= 0) {
    errno = EAGAIN;
    return -1;
  }
  return write(fd_, data, std::min<size_t>(size, PIPE_BUF));
}

}  // namespace ronde::launch
