#include "core/launch/output.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <gmock/gmock.h>

namespace ronde::launch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// What was written so far, from the other end of a pipe.
class LaunchOutputTest : public testing::Test {
 protected:
  LaunchOutputTest() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    reader_ = UniqueFd(ends[0]);
    writer_ = UniqueFd(ends[1]);
    EXPECT_EQ(fcntl(reader_.get(), F_SETFL, O_NONBLOCK), 0);
    sink_ = std::make_unique<Sink>(writer_.get());
    console_ = std::make_unique<Console>(sink_.get());
  }

  std::string Read() {
    sink_->Flush();
    std::string text(1 << 20, '\0');
    const ssize_t count = read(reader_.get(), text.data(), text.size());
    text.resize(count > 0 ? static_cast<size_t>(count) : 0);
    return text;
  }

  UniqueFd reader_;
  UniqueFd writer_;
  std::unique_ptr<Sink> sink_;
  std::unique_ptr<Console> console_;
};

TEST_F(LaunchOutputTest, EveryLineGetsItsPrefixOnceItIsWhole) {
  LineRelay zero(console_.get(), "[0] ", LineRelay::kForever);
  LineRelay one(console_.get(), "[1] ", LineRelay::kForever);
  zero.Feed("a\nb", 0);
  one.Feed("x\n\ny\n", 0);
  zero.Feed("c\n", 0);
  EXPECT_EQ(Read(), "[0] a\n[1] x\n[1] \n[1] y\n[0] bc\n");
}

TEST_F(LaunchOutputTest, AnUnfinishedLineIsShownAfterAWhileAndContinues) {
  LineRelay zero(console_.get(), "[0] ", 100);
  LineRelay one(console_.get(), "[1] ", 100);
  zero.Feed("name? ", 1000);
  EXPECT_EQ(Read(), "");
  ASSERT_EQ(zero.flush_at_ns(), 1100);
  zero.FlushPartial();
  EXPECT_EQ(zero.flush_at_ns(), 0);
  EXPECT_EQ(Read(), "[0] name? ");
  zero.Feed("ok\n", 2000);
  EXPECT_EQ(Read(), "ok\n");
  zero.Feed("half", 3000);
  zero.FlushPartial();
  one.Feed("whole\n", 3000);
  zero.Feed(" rest\n", 3000);
  EXPECT_EQ(Read(), "[0] half\n[1] whole\n[0]  rest\n");
}

TEST_F(LaunchOutputTest, CarriageReturnsAreNotHeldBack) {
  LineRelay zero(console_.get(), "[0] ", LineRelay::kForever);
  zero.Feed("10%\r20%\r", 0);
  EXPECT_EQ(Read(), "[0] 10%\r[0] 20%\r");
  zero.Feed("\n", 0);
  EXPECT_EQ(Read(), "\n");
  zero.Feed("\r30%", 0);  // as a progress bar begins
  zero.Feed("\r40%\r\n", 0);
  EXPECT_EQ(Read(), "\r[0] 30%\r[0] 40%\r\n");
}

TEST_F(LaunchOutputTest, TheEndOfAStreamEndsItsLine) {
  LineRelay zero(console_.get(), "[0] ", LineRelay::kForever);
  zero.Feed("no newline", 0);
  zero.Finish();
  EXPECT_EQ(Read(), "[0] no newline\n");
  LineRelay plain(console_.get(), "", 0);
  plain.Feed("as it came", 0);
  plain.Finish();
  EXPECT_EQ(Read(), "as it came");
  console_->WriteLine("ronde: note");
  EXPECT_EQ(Read(), "\nronde: note\n");
}

TEST_F(LaunchOutputTest, AnEndlessLineIsPassedOnInPieces) {
  LineRelay zero(console_.get(), "[0] ", LineRelay::kForever);
  const std::string piece(40'000, 'x');
  zero.Feed(piece, 0);
  EXPECT_EQ(Read(), "");
  zero.Feed(piece, 0);
  std::string all = Read();
  all += Read();  // a pipe holds 64 KiB
  EXPECT_EQ(all, "[0] " + piece + piece);
}

TEST_F(LaunchOutputTest, ASlowReaderDoesNotBlockAndLosesNothing) {
  const std::string big(300'000, 'y');
  sink_->Append(big);
  sink_->Flush();
  EXPECT_GT(sink_->pending_bytes(), 0u);
  // Shared flags stay as they were.
  EXPECT_EQ(fcntl(writer_.get(), F_GETFL) & O_NONBLOCK, 0);
  std::string all;
  while (all.size() < big.size()) {
    const std::string piece = Read();
    ASSERT_FALSE(piece.empty());
    all += piece;
  }
  EXPECT_EQ(all, big);
  EXPECT_EQ(sink_->pending_bytes(), 0u);
}

TEST_F(LaunchOutputTest, AReaderThatHasGoneClosesTheSink) {
  signal(SIGPIPE, SIG_IGN);
  reader_.Reset();
  sink_->Append("x");
  sink_->Flush();
  EXPECT_TRUE(sink_->closed());
  EXPECT_EQ(sink_->pending_bytes(), 0u);
}

TEST(LaunchSinkTest, SocketsDoNotBlockEither) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd near(ends[0]);
  const UniqueFd far(ends[1]);
  Sink sink(near.get());
  sink.Append(std::string(8 << 20, 'z'));
  sink.Flush();
  EXPECT_GT(sink.pending_bytes(), 0u);
  EXPECT_FALSE(sink.closed());
}

TEST(LaunchLastLinesTest, KeepsTheLastTwenty) {
  LastLines last;
  EXPECT_THAT(last.lines(), IsEmpty());
  for (int i = 0; i < 30; ++i) last.Feed("line " + std::to_string(i) + "\n");
  std::vector<std::string> lines = last.lines();
  ASSERT_EQ(lines.size(), 20u);
  EXPECT_EQ(lines.front(), "line 10");
  last.Feed("unfinished");
  lines = last.lines();
  ASSERT_EQ(lines.size(), 20u);
  EXPECT_EQ(lines.front(), "line 11");
  EXPECT_EQ(lines.back(), "unfinished");
}

TEST(LaunchLastLinesTest, ProgressBarsCountAsWhatTheyLastShowed) {
  LastLines last;
  last.Feed("\r10%\r20");
  last.Feed("%\r100%\ndone\r");
  last.Feed("\n");
  EXPECT_THAT(last.lines(), ElementsAre("100%", "done"));
}

TEST(LaunchLastLinesTest, LongLinesAreCut) {
  LastLines last;
  for (int i = 0; i < 5; ++i) last.Feed(std::string(700, 'x'));
  last.Feed("\nnext\n");
  EXPECT_THAT(last.lines(), ElementsAre(std::string(LastLines::kLineBytes, 'x'), "next"));
}

}  // namespace
}  // namespace ronde::launch
