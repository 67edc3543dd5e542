// Channel: framed messages with descriptors over a Unix stream socket.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/fd.h"
#include "ronde/status.h"

namespace ronde {

enum class FrameType : uint16_t { kHello = 1, kWelcome = 2, kProposal = 3, kDecision = 4 };

struct Frame {
  FrameType type = FrameType::kHello;
  std::string body;  // a serialised message of core/control/messages.proto
  std::vector<UniqueFd> fds;
};

// Owns its socket. One thread at a time (the token's holder, once a Runtime runs). Never blocks.
class Channel {
 public:
  explicit Channel(UniqueFd socket);

  int fd() const { return socket_.get(); }
  // Queues a frame and sends as much as the socket takes. `fds` are duplicated into the message;
  // the caller keeps them.
  Status Send(FrameType type, std::string_view body, const std::vector<int>& fds = {});
  // Sends queued bytes. wants_write() says whether some are left.
  Status Flush();
  bool wants_write() const { return !outgoing_.empty(); }
  // Takes one complete frame if there is one (true). kPeerLost when the other end has closed,
  // kInternal on a malformed frame, or when this process has no room for the descriptors.
  Result<bool> Receive(Frame* frame);

  static constexpr size_t kMaxFds = 250;                // SCM_MAX_FD is 253
  static constexpr size_t kMaxBody = size_t{64} << 20;  // a set of a million tensors fits

 private:
  struct Outgoing {
    std::string bytes;
    size_t sent = 0;
    std::vector<UniqueFd> fds;  // go with the first byte
  };
  Status Fill();

  UniqueFd socket_;
  std::deque<Outgoing> outgoing_;
  std::string incoming_;
  std::deque<UniqueFd> incoming_fds_;
  bool closed_ = false;
};

}  // namespace ronde
