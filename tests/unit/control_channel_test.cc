// Channels: frames and descriptors whole or not at all, and strangers' bytes refused.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <random>
#include <string>
#include <vector>

#include "core/control/channel.h"

namespace ronde {
namespace {

using ::testing::HasSubstr;

struct Ends {
  Ends() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    a = UniqueFd(fds[0]);
    b = UniqueFd(fds[1]);
  }
  UniqueFd a, b;
};

// Sends and receives in turns until the frame is there.
void Transfer(Channel* from, Channel* to, Frame* frame) {
  for (;;) {
    ASSERT_TRUE(from->Flush().ok());
    const Result<bool> received = to->Receive(frame);
    ASSERT_TRUE(received.ok()) << received.status().ToString();
    if (*received) return;
  }
}

TEST(ChannelTest, FramesOfAllSizesInOrder) {
  Ends ends;
  Channel from(std::move(ends.a)), to(std::move(ends.b));
  const std::vector<size_t> sizes = {0, 1, 7, 65536, 65529, 3'000'000, 12};
  for (const size_t size : sizes) {
    ASSERT_TRUE(from.Send(FrameType::kProposal, std::string(size, 'a' + size % 26)).ok());
  }
  EXPECT_TRUE(from.wants_write());
  for (const size_t size : sizes) {
    Frame frame;
    Transfer(&from, &to, &frame);
    EXPECT_EQ(frame.type, FrameType::kProposal);
    EXPECT_EQ(frame.body, std::string(size, 'a' + size % 26));
  }
  EXPECT_FALSE(from.wants_write());
}

TEST(ChannelTest, DescriptorsStayWithTheirFrame) {
  Ends ends;
  Channel from(std::move(ends.a)), to(std::move(ends.b));
  std::vector<ino_t> inodes;
  std::vector<int> counts = {2, 0, static_cast<int>(Channel::kMaxFds), 1};
  std::vector<UniqueFd> files;
  for (const int count : counts) {
    std::vector<int> raw;
    for (int i = 0; i < count; ++i) {
      int pair[2];
      ASSERT_EQ(pipe2(pair, O_CLOEXEC), 0);
      files.emplace_back(pair[0]);
      close(pair[1]);
      struct stat info;
      ASSERT_EQ(fstat(pair[0], &info), 0);
      inodes.push_back(info.st_ino);
      raw.push_back(pair[0]);
    }
    ASSERT_TRUE(from.Send(FrameType::kDecision, std::string(100'000, 'x'), raw).ok());
  }
  size_t next = 0;
  for (const int count : counts) {
    Frame frame;
    Transfer(&from, &to, &frame);
    ASSERT_EQ(frame.fds.size(), static_cast<size_t>(count));
    for (const UniqueFd& fd : frame.fds) {
      struct stat info;
      ASSERT_EQ(fstat(fd.get(), &info), 0);
      EXPECT_EQ(info.st_ino, inodes[next++]);
      EXPECT_NE(fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
    }
  }
}

TEST(ChannelTest, DescriptorsThatFindNoRoomAreAnError) {
  Ends ends;
  Channel from(std::move(ends.a)), to(std::move(ends.b));
  ASSERT_TRUE(from.Send(FrameType::kDecision, "arena", {from.fd()}).ok());
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  // The lowest free descriptor is the one that would be used.
  const UniqueFd lowest(fcntl(from.fd(), F_DUPFD_CLOEXEC, 0));
  const rlimit tight{static_cast<rlim_t>(lowest.get()) + 1, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  Frame frame;
  const Result<bool> received = to.Receive(&frame);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(received.status().code(), Code::kInternal);
  EXPECT_THAT(received.status().ToString(), HasSubstr("ulimit -n"));
}

TEST(ChannelTest, TooMuchIsRefusedBeforeItIsSent) {
  Ends ends;
  Channel from(std::move(ends.a));
  EXPECT_EQ(from.Send(FrameType::kHello, "", std::vector<int>(Channel::kMaxFds + 1, 0)).code(),
            Code::kInternal);
  EXPECT_EQ(from.Send(FrameType::kHello, std::string(Channel::kMaxBody + 1, 'x')).code(),
            Code::kInternal);
  EXPECT_FALSE(from.wants_write());
}

TEST(ChannelTest, WhatArrivedBeforeTheEndIsRead) {
  Ends ends;
  Channel to(std::move(ends.b));
  {
    Channel from(std::move(ends.a));
    ASSERT_TRUE(from.Send(FrameType::kHello, "last words").ok());
  }
  Frame frame;
  const Result<bool> received = to.Receive(&frame);
  ASSERT_TRUE(received.ok() && *received);
  EXPECT_EQ(frame.body, "last words");
  EXPECT_EQ(to.Receive(&frame).status().code(), Code::kPeerLost);
  Status status;
  for (int i = 0; i < 3 && status.ok(); ++i) status = to.Send(FrameType::kHello, "anybody?");
  EXPECT_EQ(status.code(), Code::kPeerLost);
}

TEST(ChannelTest, BytesInDribs) {
  Ends ends;
  Channel to(std::move(ends.b));
  // body_bytes, type and num_fds, then the body.
  const char bytes[] = {3, 0, 0, 0, 1, 0, 0, 0, 'a', 'b', 'c'};
  Frame frame;
  for (size_t i = 0; i < sizeof(bytes); ++i) {
    const Result<bool> early = to.Receive(&frame);
    ASSERT_TRUE(early.ok());
    EXPECT_FALSE(*early);
    ASSERT_EQ(write(ends.a.get(), bytes + i, 1), 1);
  }
  const Result<bool> received = to.Receive(&frame);
  ASSERT_TRUE(received.ok() && *received);
  EXPECT_EQ(frame.type, FrameType::kHello);
  EXPECT_EQ(frame.body, "abc");
}

TEST(ChannelTest, MalformedFrames) {
  const std::vector<std::vector<unsigned char>> headers = {
      {0, 0, 0, 0, 0, 0, 0, 0},          // type 0
      {0, 0, 0, 0, 200, 0, 0, 0},        // type 200
      {255, 255, 255, 255, 1, 0, 0, 0},  // 4 GiB
      {0, 0, 0, 0, 1, 0, 255, 255},      // 65535 descriptors
  };
  for (const auto& header : headers) {
    Ends ends;
    Channel to(std::move(ends.b));
    ASSERT_EQ(write(ends.a.get(), header.data(), header.size()), 8);
    Frame frame;
    const Result<bool> received = to.Receive(&frame);
    EXPECT_EQ(received.status().code(), Code::kInternal);
    EXPECT_THAT(received.status().ToString(), HasSubstr("malformed"));
  }
}

TEST(ChannelTest, RandomBytesNeverHarm) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    Ends ends;
    Channel to(std::move(ends.b));
    std::string bytes(1 + random() % 200, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random() % (round % 2 == 0 ? 256 : 4));
    ASSERT_EQ(write(ends.a.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    ends.a.Reset();
    Frame frame;
    int frames = 0;
    Result<bool> received = to.Receive(&frame);
    while (received.ok() && *received) {
      ++frames;
      received = to.Receive(&frame);
    }
    EXPECT_LE(frames, 25);
    EXPECT_FALSE(received.ok());  // the end, or nonsense
  }
}

}  // namespace
}  // namespace ronde
