// What comes out of `ronde run`.
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>

#include <gmock/gmock.h>

#include "core/base/fd.h"
#include "tests/multiproc/launch_process.h"

namespace ronde::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class LaunchRunOutputTest : public LaunchTest {
 protected:
  std::string ReadAll(int fd) {
    std::string text;
    std::string piece(1 << 16, '\0');
    for (ssize_t count = 0; (count = read(fd, piece.data(), piece.size())) > 0;) {
      text.append(piece, 0, static_cast<size_t>(count));
    }
    return text;
  }

  // A pipe whose writing end is given to the program alone.
  std::pair<UniqueFd, UniqueFd> MakePipe() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    return {UniqueFd(ends[0]), UniqueFd(ends[1])};
  }
};

TEST_F(LaunchRunOutputTest, LinesOfManyRanksStayWhole) {
  auto [reader, writer] = MakePipe();
  Launched::Options process;
  process.stdout_fd = writer.get();
  // Written in two pieces each, so that pieces of different ranks meet.
  Launched job = Start(8, {},
                       "i=0; while [ $i -lt 200 ]; do printf \"line $i of \"; echo rank $RANK; "
                       "i=$((i+1)); done; echo ok >&2",
                       process);
  writer.Reset();
  const std::string out = ReadAll(reader.get());
  EXPECT_EQ(job.Wait(), 0);
  std::map<std::string, int> next;
  for (const std::string& line : SortedLines(out)) {
    const std::string rank = line.substr(1, 1);
    EXPECT_THAT(line, testing::MatchesRegex("\\[" + rank + "\\] line [0-9]+ of rank " + rank));
    ++next[rank];
  }
  EXPECT_EQ(next.size(), 8u);
  for (const auto& [rank, lines] : next) EXPECT_EQ(lines, 200) << rank;
  EXPECT_THAT(job.err(), HasSubstr("[5] ok\n"));
}

TEST_F(LaunchRunOutputTest, OneRankIsPassedThroughAsItIs) {
  Launched job = Start(1, {}, "printf 'a\\nb'; printf 'c' >&2");
  EXPECT_EQ(job.Wait(), 0);
  EXPECT_EQ(job.out(), "a\nb");
  EXPECT_EQ(job.err(), "c");
}

TEST_F(LaunchRunOutputTest, AMissingLastNewlineIsAdded) {
  Launched job = Start(2, {}, "printf end$RANK");
  EXPECT_EQ(job.Wait(), 0);
  EXPECT_THAT(SortedLines(job.out()), ElementsAre("[0] end0", "[1] end1"));
}

TEST_F(LaunchRunOutputTest, FilesPerRank) {
  const std::string files = folder() + "/a/b";
  const std::string script = "printf out$RANK; echo err$RANK >&2";
  Launched job = Start(2, {"--output", files}, script);
  EXPECT_EQ(job.Wait(), 0);
  EXPECT_THAT(SortedLines(job.out()), ElementsAre("[0] out0", "[1] out1"));
  for (const char* rank : {"0", "1"}) {
    EXPECT_EQ(ReadFile(files + "/rank." + rank + ".stdout"), std::string("out") + rank);
    EXPECT_EQ(ReadFile(files + "/rank." + rank + ".stderr"), std::string("err") + rank + "\n");
  }
  Launched quiet = Start(2, {"--output", files, "--quiet", "--threads", "1"}, script);
  EXPECT_EQ(quiet.Wait(), 0);
  EXPECT_THAT(quiet.out() + quiet.err(), IsEmpty());
  EXPECT_EQ(ReadFile(files + "/rank.1.stdout"), "out1");
}

TEST_F(LaunchRunOutputTest, HugeOutputIsComplete) {
  auto [reader, writer] = MakePipe();
  Launched::Options process;
  process.stdout_fd = writer.get();
  constexpr size_t kBytes = 20'000'000;
  Launched job = Start(2, {"--no-prefix"}, "yes 123456789 | head -c 20000000", process);
  writer.Reset();
  EXPECT_EQ(ReadAll(reader.get()).size(), 2 * kBytes);
  EXPECT_EQ(job.Wait(), 0);
}

TEST_F(LaunchRunOutputTest, AReaderThatLeavesEndsTheJobAsItWouldEndTheCommand) {
  auto [reader, writer] = MakePipe();
  Launched::Options process;
  process.stdout_fd = writer.get();
  Launched job = Start(2, {}, "exec yes", process);
  writer.Reset();
  std::string first(8, '\0');
  EXPECT_GT(read(reader.get(), first.data(), first.size()), 0);
  reader.Reset();
  EXPECT_EQ(job.Wait(), 128 + SIGPIPE);
  EXPECT_THAT(job.err(), HasSubstr("killed by SIGPIPE"));
}

TEST_F(LaunchRunOutputTest, SixtyFourRanks) {
  Launched job = Start(64, {}, "echo here");
  EXPECT_EQ(job.Wait(), 0) << job.err();
  const std::vector<std::string> lines = SortedLines(job.out());
  EXPECT_EQ(lines.size(), 64u);
  EXPECT_EQ(std::set<std::string>(lines.begin(), lines.end()).size(), 64u);
}

// At a terminal: prompts without a newline appear, rank 0 reads the keyboard, Ctrl-C reaches all.
TEST_F(LaunchRunOutputTest, Terminal) {
  int master = -1;
  const pid_t pid = forkpty(&master, nullptr, nullptr, nullptr);
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    setenv("LAUNCH_TEST_MARK", folder().c_str(), 1);
    setenv("TMPDIR", (folder() + "/tmp").c_str(), 1);
    execl(RONDE_PROGRAM, "ronde", "run", "-n", "2", "--threads", "1", "sh", "-c",
          "if [ $RANK = 0 ]; then printf 'name? '; read name; echo \"hello $name\"; fi; "
          "while true; do sleep 0.05; done",
          nullptr);
    _exit(98);
  }
  const UniqueFd terminal(master);
  std::string seen;
  auto see = [&](const char* text) {
    std::string piece(4096, '\0');
    while (seen.find(text) == std::string::npos) {
      pollfd ready = {terminal.get(), POLLIN, 0};
      if (poll(&ready, 1, 60'000) <= 0) return false;
      const ssize_t count = read(terminal.get(), piece.data(), piece.size());
      if (count <= 0) return false;
      seen.append(piece, 0, static_cast<size_t>(count));
    }
    return true;
  };
  EXPECT_TRUE(see("[0] name? ")) << seen;
  EXPECT_EQ(write(terminal.get(), "ann\n", 4), 4);
  EXPECT_TRUE(see("hello ann\r\n")) << seen;
  EXPECT_EQ(write(terminal.get(), "\x03", 1), 1);
  EXPECT_TRUE(see("ronde: rank 1: killed by SIGINT")) << seen;
  int status = 0;
  EXPECT_TRUE(Eventually([&] { return waitpid(pid, &status, WNOHANG) == pid; }));
  EXPECT_EQ(WEXITSTATUS(status), 130);
}

}  // namespace
}  // namespace ronde::launch
