#include "core/control/channel.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

namespace ronde {
namespace {

struct FrameHeader {
  uint32_t body_bytes;
  uint16_t type;
  uint16_t num_fds;
};

constexpr size_t kControlBytes = CMSG_SPACE(sizeof(int) * Channel::kMaxFds);

}  // namespace

Channel::Channel(UniqueFd socket) : socket_(std::move(socket)) {
  fcntl(socket_.get(), F_SETFL, fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
}

Status Channel::Send(FrameType type, std::string_view body, const std::vector<int>& fds) {
  if (body.size() > kMaxBody || fds.size() > kMaxFds) {
    return Status::Internal(fmt::format("control message too large: {} bytes, {} descriptors",
                                        body.size(), fds.size()));
  }
  const FrameHeader header{static_cast<uint32_t>(body.size()), static_cast<uint16_t>(type),
                           static_cast<uint16_t>(fds.size())};
  Outgoing out;
  out.bytes.assign(reinterpret_cast<const char*>(&header), sizeof(header));
  out.bytes.append(body);
  for (const int fd : fds) {
    out.fds.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!out.fds.back().valid()) return Status::FromErrno("duplicating a descriptor");
  }
  outgoing_.push_back(std::move(out));
  return Flush();
}

Status Channel::Flush() {
  while (!outgoing_.empty()) {
    Outgoing& out = outgoing_.front();
    iovec part{out.bytes.data() + out.sent, out.bytes.size() - out.sent};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, kControlBytes> control{};
    if (out.sent == 0 && !out.fds.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(sizeof(int) * out.fds.size());
      cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int) * out.fds.size());
      std::vector<int> raw;
      for (const UniqueFd& fd : out.fds) raw.push_back(fd.get());
      std::memcpy(CMSG_DATA(rights), raw.data(), raw.size() * sizeof(int));
    }
    const ssize_t sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      // ETOOMANYREFS: an ordinary user may have only RLIMIT_NOFILE descriptors under way in
      // sockets; the receivers take them out.
      if (errno == EAGAIN || errno == EINTR || errno == ETOOMANYREFS) return Status::Ok();
      if (errno == EPIPE || errno == ECONNRESET) return Status::PeerLost("control channel closed");
      return Status::FromErrno("sending on a control channel");
    }
    out.sent += static_cast<size_t>(sent);
    if (out.sent == out.bytes.size()) outgoing_.pop_front();
  }
  return Status::Ok();
}

Status Channel::Fill() {
  std::array<char, 65536> buffer;
  alignas(cmsghdr) std::array<char, kControlBytes> control;
  for (;;) {
    iovec part{buffer.data(), buffer.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t received = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
    if (received < 0) {
      if (errno == EAGAIN) return Status::Ok();
      if (errno == EINTR) continue;
      if (errno == ECONNRESET) {
        closed_ = true;
        return Status::Ok();
      }
      return Status::FromErrno("receiving on a control channel");
    }
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      std::vector<int> raw(count);
      std::memcpy(raw.data(), CMSG_DATA(c), count * sizeof(int));
      for (const int fd : raw) incoming_fds_.emplace_back(fd);
    }
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
      return Status::Internal(
          "descriptors sent on a control channel were lost: this process may open no more files "
          "(ulimit -n)");
    }
    if (received == 0) {
      closed_ = true;
      return Status::Ok();
    }
    incoming_.append(buffer.data(), static_cast<size_t>(received));
  }
}

Result<bool> Channel::Receive(Frame* frame) {
  if (!closed_) RONDE_RETURN_IF_ERROR(Fill());
  FrameHeader header;
  if (incoming_.size() >= sizeof(header)) {
    std::memcpy(&header, incoming_.data(), sizeof(header));
    if (header.body_bytes > kMaxBody || header.num_fds > kMaxFds ||
        header.type < static_cast<uint16_t>(FrameType::kHello) ||
        header.type > static_cast<uint16_t>(FrameType::kDecision)) {
      return Status::Internal(
          fmt::format("malformed control message: type {}, {} bytes, {} descriptors", header.type,
                      header.body_bytes, header.num_fds));
    }
    if (incoming_.size() >= sizeof(header) + header.body_bytes &&
        incoming_fds_.size() >= header.num_fds) {
      frame->type = static_cast<FrameType>(header.type);
      frame->body.assign(incoming_, sizeof(header), header.body_bytes);
      frame->fds.clear();
      for (int i = 0; i < header.num_fds; ++i) {
        frame->fds.push_back(std::move(incoming_fds_.front()));
        incoming_fds_.pop_front();
      }
      incoming_.erase(0, sizeof(header) + header.body_bytes);
      return true;
    }
  }
  if (closed_) return Status::PeerLost("control channel closed by the other end");
  return false;
}

}  // namespace ronde
