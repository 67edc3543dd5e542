#include "tests/multiproc/launch_process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>

namespace ronde::launch {
namespace {

constexpr const char* kMark = "LAUNCH_TEST_MARK";

void Redirect(const std::string& path, int flags, int target) {
  const int fd = open(path.c_str(), flags, 0600);
  if (fd < 0 || dup2(fd, target) < 0) _exit(99);
  close(fd);
}

}  // namespace

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool Eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

std::vector<std::string> SortedLines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

Launched::Launched(std::string folder, std::vector<std::string> arguments, const Options& options)
    : folder_(std::move(folder)) {
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ + "/stdin") << options.stdin_text;
  arguments.insert(arguments.begin(), RONDE_PROGRAM);
  pid_ = fork();
  if (pid_ != 0) return;
  Redirect(folder_ + "/stdin", O_RDONLY, STDIN_FILENO);
  if (options.stdout_fd >= 0) {
    dup2(options.stdout_fd, STDOUT_FILENO);
  } else {
    Redirect(folder_ + "/stdout", O_WRONLY | O_CREAT | O_APPEND, STDOUT_FILENO);
  }
  Redirect(folder_ + "/stderr", O_WRONLY | O_CREAT | O_APPEND, STDERR_FILENO);
  for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> words;
  for (std::string& word : arguments) words.push_back(word.data());
  words.push_back(nullptr);
  execv(words[0], words.data());
  _exit(98);
}

Launched::~Launched() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

int Launched::Wait() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(90);
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "ronde does not end; its stderr so far:\n" << err();
      kill(pid_, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  pid_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string Launched::out() const {
  return ReadFile(folder_ + "/stdout");
}
std::string Launched::err() const {
  return ReadFile(folder_ + "/stderr");
}

LaunchTest::LaunchTest() {
  std::string pattern = "/tmp/launch-test-XXXXXX";
  folder_ = mkdtemp(pattern.data());
  std::filesystem::create_directory(folder_ + "/tmp");
}

LaunchTest::~LaunchTest() {
  ExpectNothingLeft();
  for (const pid_t pid : Processes()) kill(pid, SIGKILL);
  std::filesystem::remove_all(folder_);
}

Launched LaunchTest::StartRonde(std::vector<std::string> arguments, Launched::Options process) {
  process.environment[kMark] = folder_;
  process.environment["TMPDIR"] = folder_ + "/tmp";
  return Launched(folder_ + "/" + std::to_string(launched_++), std::move(arguments), process);
}

Launched LaunchTest::Start(int ranks, std::vector<std::string> options, const std::string& script,
                           Launched::Options process) {
  std::vector<std::string> arguments = {"run", "-n", std::to_string(ranks)};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.insert(arguments.end(), {"sh", "-c", script});
  return StartRonde(std::move(arguments), std::move(process));
}

std::vector<pid_t> LaunchTest::Processes() const {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    // A zombie's environment is empty: it does not count.
    const std::string environment = ReadFile("/proc/" + name + "/environ");
    if (environment.find(kMark + ("=" + folder_)) != std::string::npos) {
      found.push_back(std::stoi(name));
    }
  }
  return found;
}

void LaunchTest::ExpectNothingLeft() const {
  EXPECT_TRUE(Eventually([this] { return Processes().empty(); })) << "a process is left";
  const std::string tmp = folder_ + "/tmp";
  EXPECT_TRUE(Eventually([&] { return std::filesystem::is_empty(tmp); })) << "a folder is left";
}

}  // namespace ronde::launch
