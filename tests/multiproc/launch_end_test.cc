// How jobs end: failures, grace, signals, left-over processes.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include <gmock/gmock.h>

#include "core/base/fd.h"
#include "tests/multiproc/launch_process.h"

namespace ronde::launch {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class LaunchEndTest : public LaunchTest {
 protected:
  static bool Says(const Launched& job, const std::string& text) {
    return Eventually([&] { return job.out().find(text) != std::string::npos; });
  }
  // State letter of /proc/PID/stat.
  static char State(pid_t pid) {
    const std::string stat = ReadFile("/proc/" + std::to_string(pid) + "/stat");
    const size_t name_end = stat.rfind(')');
    return name_end == std::string::npos ? '?' : stat[name_end + 2];
  }
};

TEST_F(LaunchEndTest, TheFirstFailingRankGivesStatusAndStderr) {
  Launched job =
      Start(3, {},
            "if [ $RANK = 2 ]; then echo one >&2; echo 'ValueError: two' >&2; exit 7; fi; "
            "sleep 1000");
  EXPECT_EQ(job.Wait(), 7);
  EXPECT_THAT(job.err(), AllOf(HasSubstr("ronde: rank 2 failed first"), HasSubstr("exit status 7"),
                               HasSubstr("  | one\n  | ValueError: two\n"),
                               HasSubstr("rank 0: ended by ronde run with SIGTERM"),
                               HasSubstr("rank 1: ended by ronde run with SIGTERM")));
}

TEST_F(LaunchEndTest, AKilledRankIsFirstAlthoughThoseWhoNoticeEndSooner) {
  for (int i = 0; i < 3; ++i) {
    const std::string file = folder() + "/shared" + std::to_string(i);
    Launched job = StartRonde({"run", "-n", "2", "--grace", "60", RONDE_DYING_RANK, file});
    EXPECT_EQ(job.Wait(), 128 + SIGKILL);
    EXPECT_THAT(job.err(), AllOf(HasSubstr("rank 1 failed first"), HasSubstr("SIGKILL"),
                                 HasSubstr("rank 0: exit status 5")));
  }
}

TEST_F(LaunchEndTest, SurvivorsMayReport) {
  Launched job = Start(2, {"--grace", "60"},
                       "if [ $RANK = 1 ]; then kill -9 $$; fi; sleep 1; echo lost rank 1; exit 4");
  EXPECT_EQ(job.Wait(), 128 + SIGKILL);
  EXPECT_EQ(job.out(), "[0] lost rank 1\n");
  EXPECT_THAT(job.err(), AllOf(HasSubstr("rank 1 failed first"), HasSubstr("killed by SIGKILL"),
                               HasSubstr("rank 0: exit status 4")));
}

TEST_F(LaunchEndTest, SurvivorsThatIgnoreSigtermAreKilled) {
  Launched job = Start(2, {"--grace", "0.2"},
                       "trap 'echo asked' TERM; if [ $RANK = 1 ]; then sleep 0.5; exit 1; fi; "
                       "while true; do sleep 0.05; done");
  EXPECT_EQ(job.Wait(), 1);
  EXPECT_EQ(job.out(), "[0] asked\n");
  EXPECT_THAT(job.err(), HasSubstr("rank 0: ended by ronde run with SIGKILL"));
}

TEST_F(LaunchEndTest, ARankThatIsDoneDoesNotEndTheOthers) {
  Launched job =
      Start(2, {"--grace", "0"}, "if [ $RANK = 0 ]; then exit 0; fi; sleep 1; echo done");
  EXPECT_EQ(job.Wait(), 0);
  EXPECT_EQ(job.out(), "[1] done\n");
}

TEST_F(LaunchEndTest, LeftOverProcessesAreEnded) {
  Launched job = Start(2, {"--grace", "0.2"},
                       "sleep 1000 & (trap '' TERM; while true; do sleep 0.05; done) & echo $RANK");
  EXPECT_EQ(job.Wait(), 0);
  EXPECT_THAT(SortedLines(job.out()), ElementsAre("[0] 0", "[1] 1"));
}

TEST_F(LaunchEndTest, WhatReadsARanksOutputMayFinish) {
  Launched job = Start(1, {}, "(sleep 0.1; echo late) & exit 0");
  EXPECT_EQ(job.Wait(), 0);
  EXPECT_EQ(job.out(), "late\n");
}

TEST_F(LaunchEndTest, UserSignalsReachEveryRankAndTheirChildren) {
  Launched job =
      Start(2, {},
            "trap 'echo usr1; exit 0' USR1; (trap 'echo child; exit 0' USR1; echo ready; "
            "while true; do sleep 0.05; done) & while true; do sleep 0.05; done");
  ASSERT_TRUE(Says(job, "[0] ready") && Says(job, "[1] ready"));
  kill(job.pid(), SIGUSR1);
  EXPECT_EQ(job.Wait(), 0) << job.err();
  EXPECT_THAT(SortedLines(job.out()), ElementsAre("[0] child", "[0] ready", "[0] usr1", "[1] child",
                                                  "[1] ready", "[1] usr1"));
}

TEST_F(LaunchEndTest, AfterSigtermRanksEndInTheirOwnTime) {
  Launched job =
      Start(2, {"--grace", "0"},
            "trap 'if [ $RANK = 1 ]; then exit 3; fi; sleep 1; echo saved; exit 0' TERM; "
            "echo ready; while true; do sleep 0.05; done");
  ASSERT_TRUE(Says(job, "[0] ready") && Says(job, "[1] ready"));
  kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.Wait(), 128 + SIGTERM);
  EXPECT_THAT(job.out(), HasSubstr("[0] saved"));
  EXPECT_THAT(job.err(), AllOf(HasSubstr("ended after SIGTERM"), HasSubstr("rank 1: exit status 3"),
                               Not(HasSubstr("failed"))));
}

TEST_F(LaunchEndTest, ASecondCtrlCOrSigtermKills) {
  for (const int signal : {SIGINT, SIGTERM}) {
    SCOPED_TRACE(signal);
    Launched job =
        Start(2, {}, "trap 'echo no' INT TERM; echo ready; while true; do sleep 0.05; done");
    ASSERT_TRUE(Says(job, "[0] ready") && Says(job, "[1] ready"));
    kill(job.pid(), signal);
    ASSERT_TRUE(Says(job, "[0] no") && Says(job, "[1] no"));
    kill(job.pid(), signal);
    EXPECT_EQ(job.Wait(), 128 + signal);
    EXPECT_THAT(job.err(), HasSubstr("rank 1: ended by ronde run with SIGKILL"));
  }
}

TEST_F(LaunchEndTest, CtrlCDoesNotWaitForAReaderWhoDoesNotRead) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  Launched::Options process;
  process.stdout_fd = writer.get();
  Launched job = Start(2, {}, "echo ready >&2; while true; do echo y; done", process);
  ASSERT_TRUE(Eventually([&] { return job.err().find("[1] ready") != std::string::npos; }));
  usleep(100'000);  // let the pipes fill; the outcome does not depend on it
  kill(job.pid(), SIGINT);
  EXPECT_EQ(job.Wait(), 130);
}

TEST_F(LaunchEndTest, CtrlZStopsAndContinuesTheRanks) {
  Launched job = Start(1, {}, "echo $$; exec sleep 1000");
  ASSERT_TRUE(Says(job, "\n"));
  const pid_t rank = std::stoi(job.out());
  kill(job.pid(), SIGTSTP);
  EXPECT_TRUE(Eventually([&] { return State(rank) == 'T' && State(job.pid()) == 'T'; }));
  kill(job.pid(), SIGCONT);
  EXPECT_TRUE(Eventually([&] { return State(rank) == 'S' && State(job.pid()) == 'S'; }));
  kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.Wait(), 128 + SIGTERM);
}

TEST_F(LaunchEndTest, OrphansDoNotBecomeZombies) {
  Launched job = Start(1, {}, "(sh -c 'echo $$; exec sleep 0.1' &); echo parent; exec sleep 1000");
  ASSERT_TRUE(Eventually([&] { return SortedLines(job.out()).size() == 2; }));
  const pid_t orphan = std::stoi(SortedLines(job.out())[0]);
  EXPECT_TRUE(Eventually([&] { return State(orphan) == '?'; }));
  kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.Wait(), 128 + SIGTERM);
}

}  // namespace
}  // namespace ronde::launch
