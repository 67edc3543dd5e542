#include "core/control/channel.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <memory>

#include <gtest/gtest.h>

namespace ronde {
namespace {

struct Pair {
  Pair() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    a = std::make_unique<Channel>(UniqueFd(ends[0]));
    b = std::make_unique<Channel>(UniqueFd(ends[1]));
  }
  std::unique_ptr<Channel> a, b;
};

TEST(ChannelTest, FramesAndDescriptorsArriveInOrder) {
  Pair pair;
  ASSERT_TRUE(pair.a->Send(FrameType::kProposal, "one").ok());
  ASSERT_TRUE(pair.a->Send(FrameType::kDecision, "two", {pair.a->fd(), pair.b->fd()}).ok());
  Frame frame;
  Result<bool> received = pair.b->Receive(&frame);
  ASSERT_TRUE(received.ok() && *received);
  EXPECT_EQ(frame.body, "one");
  EXPECT_TRUE(frame.fds.empty());
  received = pair.b->Receive(&frame);
  ASSERT_TRUE(received.ok() && *received);
  EXPECT_EQ(frame.type, FrameType::kDecision);
  EXPECT_EQ(frame.body, "two");
  EXPECT_EQ(frame.fds.size(), 2u);
  frame.fds.clear();  // one of them is the other end
  pair.a.reset();
  EXPECT_EQ(pair.b->Receive(&frame).status().code(), Code::kPeerLost);
}

TEST(ChannelTest, DescriptorsThatFindNoRoomAreAnError) {
  Pair pair;
  ASSERT_TRUE(pair.a->Send(FrameType::kDecision, "arena", {pair.a->fd()}).ok());
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  // The lowest free descriptor is the one that would be used.
  const UniqueFd lowest(fcntl(pair.a->fd(), F_DUPFD_CLOEXEC, 0));
  const rlimit tight{static_cast<rlim_t>(lowest.get()) + 1, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  Frame frame;
  const Result<bool> received = pair.b->Receive(&frame);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(received.status().code(), Code::kInternal);
  EXPECT_NE(received.status().ToString().find("ulimit -n"), std::string::npos)
      << received.status().ToString();
}

}  // namespace
}  // namespace ronde
