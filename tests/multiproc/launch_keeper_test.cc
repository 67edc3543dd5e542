// The launcher is killed: nothing may be left. LaunchTest checks that at the end of each test.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <set>

#include <gmock/gmock.h>

#include "core/base/fd.h"
#include "tests/multiproc/launch_process.h"

namespace ronde::launch {
namespace {

class LaunchKeeperTest : public LaunchTest {
 protected:
  // Which of this test's processes have `file` open.
  std::set<pid_t> Holders(const std::string& file) const {
    std::set<pid_t> holders;
    for (const pid_t pid : Processes()) {
      std::error_code gone;
      const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
      for (const auto& fd : std::filesystem::directory_iterator(folder, gone)) {
        if (std::filesystem::read_symlink(fd.path(), gone) == file) holders.insert(pid);
      }
    }
    return holders;
  }
};

TEST_F(LaunchKeeperTest, RanksTheirChildrenAndTheFolderGoWithAKilledLauncher) {
  Launched job = Start(3, {},
                       "touch $(dirname $RONDE_RENDEZVOUS)/socket$RANK; trap '' TERM HUP INT; "
                       "sleep 1000 & (sleep 1000 &) ; echo ready; while true; do sleep 0.05; done");
  ASSERT_TRUE(Eventually([&] { return SortedLines(job.out()).size() == 3; }));
  EXPECT_GE(Processes().size(), 11u);  // launcher, keeper, and three of each rank
  EXPECT_FALSE(std::filesystem::is_empty(folder() + "/tmp"));
  kill(job.pid(), SIGKILL);
  EXPECT_EQ(job.Wait(), 128 + SIGKILL);
  ExpectNothingLeft();
}

TEST_F(LaunchKeeperTest, AtWhicheverMoment) {
  for (int delay_us = 0; delay_us < 30'000; delay_us += 1'000) {
    Launched job = Start(4, {}, "sleep 1000 & exec sleep 1000");
    usleep(static_cast<useconds_t>(delay_us));
    kill(job.pid(), SIGKILL);
    job.Wait();
  }
  ExpectNothingLeft();
}

TEST_F(LaunchKeeperTest, DoesNotHoldTheLaunchersOutputOpen) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  Launched::Options process;
  process.stdout_fd = writer.get();
  Launched job = Start(1, {}, "echo ready; exec sleep 1000", process);
  writer.Reset();
  char piece[16];
  EXPECT_EQ(read(reader.get(), piece, sizeof(piece)), 6);
  // Only the launcher has this pipe open for writing: neither rank nor, once it has come to closing
  // what it was born with, the keeper.
  const std::string pipe =
      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(reader.get()));
  EXPECT_TRUE(Eventually([&] { return Holders(pipe) == std::set<pid_t>{job.pid()}; }));
  kill(job.pid(), SIGTERM);
  EXPECT_EQ(read(reader.get(), piece, sizeof(piece)), 0);
  EXPECT_EQ(job.Wait(), 128 + SIGTERM);
}

TEST_F(LaunchKeeperTest, AJobGoesOnWithoutItsKeeper) {
  Launched job = Start(1, {}, "echo ready; read line; sleep 1000");
  ASSERT_TRUE(Eventually([&] { return !job.out().empty(); }));
  pid_t keeper = -1;
  ASSERT_TRUE(Eventually([&] {
    for (const pid_t pid : Processes()) {
      const std::string name = ReadFile("/proc/" + std::to_string(pid) + "/comm");
      if (name == "ronde-keeper\n") keeper = pid;
    }
    return keeper > 0;
  }));
  kill(keeper, SIGKILL);
  EXPECT_TRUE(Eventually([&] { return job.err().find("was itself killed") != std::string::npos; }));
  kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.Wait(), 128 + SIGTERM);
}

}  // namespace
}  // namespace ronde::launch
