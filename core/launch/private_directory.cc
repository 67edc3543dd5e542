#include "core/launch/private_directory.h"

#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include <fmt/format.h>

namespace ronde::launch {
namespace {

constexpr const char* kSocketName = "/rendezvous";

// Field 22 of /proc/self/stat: makes the name unique although process numbers come again.
std::string StartTime() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  // The second field is the program's name in parentheses, which may contain anything.
  std::istringstream rest(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string field;
  for (int number = 3; number <= 22; ++number) rest >> field;
  return field;
}

}  // namespace

PrivateDirectory::PrivateDirectory(std::string path) : path_(std::move(path)) {}

PrivateDirectory::PrivateDirectory(PrivateDirectory&& other) noexcept
    : path_(std::exchange(other.path_, {})) {}

PrivateDirectory::~PrivateDirectory() {
  if (!path_.empty()) RemoveDirectory(path_);
}

std::string PrivateDirectory::socket_path() const {
  return path_ + kSocketName;
}

Result<PrivateDirectory> PrivateDirectory::Create() {
  const char* variable = std::getenv("TMPDIR");
  const std::string where = variable != nullptr && *variable != '\0' ? variable : "/tmp";
  std::error_code error;
  const std::string parent = std::filesystem::canonical(where, error).string();
  if (error) {
    return Status::InvalidArgument(fmt::format(
        "cannot use the temporary folder '{}' (TMPDIR, or else /tmp): {}", where, error.message()));
  }
  std::string path = fmt::format("{}/ronde-{}-{}-{}", parent == "/" ? "" : parent, getuid(),
                                 getpid(), StartTime());
  if (path.size() + std::string_view(kSocketName).size() >= sizeof(sockaddr_un::sun_path)) {
    return Status::InvalidArgument(
        fmt::format("TMPDIR='{}' is not allowed: the path of a socket in it, '{}{}', must be at "
                    "most {} bytes",
                    where, path, kSocketName, sizeof(sockaddr_un::sun_path) - 1));
  }
  if (mkdir(path.c_str(), 0700) != 0) {
    return Status::FromErrno(fmt::format("cannot create the folder '{}'", path));
  }
  return PrivateDirectory(std::move(path));
}

void RemoveDirectory(const std::string& path) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (!std::filesystem::exists(path, error)) return;
    usleep(10'000);
  }
}

}  // namespace ronde::launch
