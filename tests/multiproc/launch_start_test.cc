// What ranks are given, and requests that cannot be met.
#include <sys/stat.h>

#include <gmock/gmock.h>

#include "core/launch/affinity.h"
#include "tests/multiproc/launch_process.h"

namespace ronde::launch {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

class LaunchStartTest : public LaunchTest {};

TEST_F(LaunchStartTest, RanksKnowTheirPlace) {
  Launched job = Start(3, {},
                       "echo $RONDE_RANK/$RONDE_SIZE $RONDE_LOCAL_RANK/$RONDE_LOCAL_SIZE "
                       "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR "
                       "$PYTHONUNBUFFERED");
  EXPECT_EQ(job.Wait(), 0) << job.err();
  EXPECT_THAT(SortedLines(job.out()),
              ElementsAre("[0] 0/3 0/3 0/3 0/3 0 127.0.0.1 1", "[1] 1/3 1/3 1/3 1/3 0 127.0.0.1 1",
                          "[2] 2/3 2/3 2/3 2/3 0 127.0.0.1 1"));
}

TEST_F(LaunchStartTest, RanksShareOneRandomJobAPortAndAPrivateFolder) {
  const std::string script =
      "echo $RONDE_JOB $MASTER_PORT $(stat -c %a $(dirname $RONDE_RENDEZVOUS))";
  std::vector<std::string> seen;
  for (int i = 0; i < 2; ++i) {
    Launched job = Start(2, {"--no-prefix"}, script);
    EXPECT_EQ(job.Wait(), 0) << job.err();
    const std::vector<std::string> lines = SortedLines(job.out());
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[0], lines[1]);
    EXPECT_THAT(lines[0], ContainsRegex("^[0-9a-f]{32} [0-9]+ 700$"));
    seen.push_back(lines[0].substr(0, 32));
  }
  EXPECT_NE(seen[0], seen[1]);
}

TEST_F(LaunchStartTest, ThreadsAreSharedOutAndThisIsSaidOnce) {
  const int cores = UsableCores(ReadTopology());
  const std::string script = "echo $OMP_NUM_THREADS $MKL_NUM_THREADS $OPENBLAS_NUM_THREADS";
  Launched::Options unset;
  unset.environment = {
      {"OMP_NUM_THREADS", ""}, {"MKL_NUM_THREADS", ""}, {"OPENBLAS_NUM_THREADS", ""}};
  Launched plain = Start(2, {"--no-prefix"}, script, unset);
  EXPECT_EQ(plain.Wait(), 0);
  const std::string share = std::to_string(std::max(1, cores / 2));
  const std::string line = share + " " + share + " " + share;
  EXPECT_THAT(SortedLines(plain.out()), ElementsAre(line, line));
  EXPECT_EQ(SortedLines(plain.err()).size(), 1u);
  EXPECT_THAT(plain.err(), AllOf(StartsWith("ronde: 2 ranks on "), HasSubstr("--threads")));

  Launched::Options set = unset;
  set.environment["OMP_NUM_THREADS"] = "7";
  Launched users = Start(1, {}, "echo $OMP_NUM_THREADS", set);
  EXPECT_EQ(users.Wait(), 0);
  EXPECT_EQ(users.out(), "7\n");

  Launched forced = Start(2, {"--threads", "3", "--no-prefix"}, script, set);
  EXPECT_EQ(forced.Wait(), 0);
  EXPECT_THAT(SortedLines(forced.out()), ElementsAre("3 3 3", "3 3 3"));
  EXPECT_EQ(forced.err(), "");
}

TEST_F(LaunchStartTest, OnlyRankZeroReadsStdin) {
  Launched::Options process;
  process.stdin_text = "hello\n";
  Launched job = Start(2, {}, "cat; echo end", process);
  EXPECT_EQ(job.Wait(), 0);
  EXPECT_THAT(SortedLines(job.out()), ElementsAre("[0] end", "[0] hello", "[1] end"));
}

TEST_F(LaunchStartTest, BindCorePinsEachRank) {
  const Topology topology = ReadTopology();
  const int cores = static_cast<int>(topology.cpus.size());
  Launched job = Start(cores, {"--bind", "core", "--no-prefix"},
                       "grep Cpus_allowed_list /proc/self/status | cut -f2");
  EXPECT_EQ(job.Wait(), 0) << job.err();
  std::vector<std::string> expected;
  for (const int cpu : topology.cpus) expected.push_back(std::to_string(cpu));
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(SortedLines(job.out()), expected);

  Launched more = Start(cores + 1, {"--bind", "core"}, "echo ran");
  EXPECT_EQ(more.Wait(), 2);
  EXPECT_EQ(more.out(), "");
  EXPECT_THAT(more.err(), HasSubstr("use -n " + std::to_string(cores) + " or less"));
}

TEST_F(LaunchStartTest, ACommandThatCannotRunIsOneLineAndNoRank) {
  Launched missing = StartRonde({"run", "-n", "4", "no-such-command", "x"});
  EXPECT_EQ(missing.Wait(), 127);
  EXPECT_EQ(missing.err(),
            "ronde run: cannot execute 'no-such-command': No such file or directory\n");
  Launched folder = StartRonde({"run", "-n", "2", "/tmp"});
  EXPECT_EQ(folder.Wait(), 126);
  EXPECT_THAT(folder.err(), HasSubstr("cannot execute '/tmp': Permission denied"));
}

TEST_F(LaunchStartTest, UsageErrorsNameValueAndWhatIsAllowed) {
  struct Case {
    std::vector<std::string> arguments;
    const char* message;
  };
  for (const Case& test :
       std::vector<Case>{{{"run", "-n", "0", "true"},
                          "ronde run: -n: '0' is not allowed: must be a whole number"},
                         {{"run", "-n", "two", "true"}, "'two' is not allowed"},
                         {{"run", "true"}, "-n is required"},
                         {{"run", "-n", "2"}, "a command to run is missing"},
                         {{"run", "-n", "2", "--typo", "true"}, "unknown option '--typo'"},
                         {{"run", "-n", "2", "--bind", "x", "true"}, "must be none, core or numa"},
                         {{"run", "-n", "2", "--grace", "-1", "true"}, "'-1' is not allowed"},
                         {{"run", "-n", "2", "--quiet", "true"}, "--quiet requires --output"},
                         {{"run", "-n", "2", "--output", "/dev/null/x", "true"}, "/dev/null/x"},
                         {{"bogus"}, "bogus"},
                         {{}, "a command is missing"}}) {
    Launched job = StartRonde(test.arguments);
    EXPECT_EQ(job.Wait(), 2) << test.message;
    EXPECT_THAT(job.err(), HasSubstr(test.message));
    EXPECT_THAT(job.out(), IsEmpty());
  }
}

TEST_F(LaunchStartTest, TheCommandsOwnOptionsAreLeftAlone) {
  Launched job =
      StartRonde({"run", "-n", "1", "sh", "-c", "printf '%s ' \"$@\"", "x", "-n", "5", "--", "-q"});
  EXPECT_EQ(job.Wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "-n 5 -- -q ");
  Launched separated =
      StartRonde({"run", "-n", "1", "--", "sh", "-c", "printf '%s ' \"$@\"", "x", "--", "-n"});
  EXPECT_EQ(separated.Wait(), 0) << separated.err();
  EXPECT_EQ(separated.out(), "-- -n ");
}

TEST_F(LaunchStartTest, AnUnusableTemporaryFolderIsNamed) {
  Launched long_path = StartRonde(
      {"run", "-n", "1", "env", "TMPDIR=/nonexistent", RONDE_PROGRAM, "run", "-n", "1", "true"});
  EXPECT_EQ(long_path.Wait(), 2);
  EXPECT_THAT(long_path.err(), HasSubstr("/nonexistent"));
}

TEST_F(LaunchStartTest, HelpVersionAndDoctor) {
  Launched version = StartRonde({"--version"});
  EXPECT_EQ(version.Wait(), 0);
  EXPECT_EQ(version.out(), "ronde " RONDE_VERSION "\n");
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--help"}, {"run", "--help"}, {"doctor", "--help"}}) {
    Launched help = StartRonde(arguments);
    EXPECT_EQ(help.Wait(), 0);
    EXPECT_THAT(help.out(), HasSubstr("Usage: ronde"));
  }
  Launched::Options process;
  process.environment["RONDE_TIMEOUT_S"] = "5";
  Launched doctor = StartRonde({"doctor"}, process);
  EXPECT_EQ(doctor.Wait(), 0);
  EXPECT_THAT(doctor.out(), ContainsRegex("\\* RONDE_TIMEOUT_S +5 +\\(default: 600\\)"));
  EXPECT_THAT(doctor.out(), Not(HasSubstr("* RONDE_SIZE")));
  EXPECT_THAT(doctor.out(), HasSubstr("\nbackends\n  shm         available: "));
  EXPECT_THAT(doctor.out(), HasSubstr("\n  *:0-32K=shm/oneshot\n"));
  process.environment["RONDE_TIMEOUT_S"] = "soon";
  Launched broken = StartRonde({"doctor"}, process);
  EXPECT_EQ(broken.Wait(), 1);
  EXPECT_THAT(broken.out(), HasSubstr("RONDE_TIMEOUT_S='soon'"));
}

}  // namespace
}  // namespace ronde::launch
