// Runs the built program `ronde` for tests, and checks that it leaves nothing behind.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace ronde::launch {

// One running `ronde`. Owned by its test; killed when it goes.
class Launched {
 public:
  struct Options {
    std::map<std::string, std::string> environment;  // added to the test's own
    std::string stdin_text;
    int stdout_fd = -1;  // borrowed; -1: a file that out() reads
  };

  Launched(std::string folder, std::vector<std::string> arguments, const Options& options);
  ~Launched();

  pid_t pid() const { return pid_; }
  // Exit status, or 128 + the signal. Fails the test and kills it after a minute and a half.
  int Wait();
  // What it has written so far.
  std::string out() const;
  std::string err() const;

 private:
  const std::string folder_;
  pid_t pid_ = -1;
};

// Until `condition` holds; false after a minute.
bool Eventually(const std::function<bool()>& condition);

// The lines of a text, sorted.
std::vector<std::string> SortedLines(const std::string& text);

std::string ReadFile(const std::string& path);

// Each test gets a folder of its own as TMPDIR, and a mark in the environment by which its
// processes are known. At its end neither processes nor folders may be left.
class LaunchTest : public testing::Test {
 protected:
  LaunchTest();
  ~LaunchTest() override;

  // `ronde run -n RANKS OPTIONS... sh -c SCRIPT`
  Launched Start(int ranks, std::vector<std::string> options, const std::string& script,
                 Launched::Options process = {});
  // `ronde ARGUMENTS...`
  Launched StartRonde(std::vector<std::string> arguments, Launched::Options process = {});

  // Processes that carry this test's mark.
  std::vector<pid_t> Processes() const;
  void ExpectNothingLeft() const;

  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;  // also the mark
  int launched_ = 0;
};

}  // namespace ronde::launch
