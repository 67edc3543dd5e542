// The launcher is killed: nothing may be left. LaunchTest checks that at the end of each test.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include <gmock/gmock.h>

#include "core/launch/unique_fd.h"
#include "tests/multiproc/launch_process.h"

namespace ronde::launch {
namespace {

class LaunchKeeperTest : public LaunchTest {};

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
  writer.reset();
  char piece[16];
  EXPECT_EQ(read(reader.get(), piece, sizeof(piece)), 6);
  // Only the launcher has this pipe open for writing: neither keeper nor rank.
  const std::string pipe =
      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(reader.get()));
  int holders = 0;
  for (const pid_t pid : Processes()) {
    const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
    for (const auto& fd : std::filesystem::directory_iterator(folder)) {
      if (std::filesystem::read_symlink(fd.path()) == pipe) {
        EXPECT_EQ(pid, job.pid());
        ++holders;
      }
    }
  }
  EXPECT_GE(holders, 1);
  kill(job.pid(), SIGTERM);
  EXPECT_EQ(read(reader.get(), piece, sizeof(piece)), 0);
  EXPECT_EQ(job.Wait(), 128 + SIGTERM);
}

TEST_F(LaunchKeeperTest, AJobGoesOnWithoutItsKeeper) {
  Launched job = Start(1, {}, "echo ready; read line; sleep 1000");
  ASSERT_TRUE(Eventually([&] { return !job.out().empty(); }));
  for (const pid_t pid : Processes()) {
    const std::string name = ReadFile("/proc/" + std::to_string(pid) + "/comm");
    if (name == "ronde-keeper\n") kill(pid, SIGKILL);
  }
  EXPECT_TRUE(Eventually([&] { return job.err().find("was itself killed") != std::string::npos; }));
  kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.Wait(), 128 + SIGTERM);
}

}  // namespace
}  // namespace ronde::launch
