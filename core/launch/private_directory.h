// PrivateDirectory: the folder that holds a job's rendezvous socket.
#pragma once

#include <string>

#include "ronde/status.h"

namespace ronde::launch {

// Owned by the running job; one thread; removed with its content when it goes. When the launcher is
// killed, the Keeper removes it.
class PrivateDirectory {
 public:
  // Where this process's folder goes: ronde-<uid>-<pid>-<start time of the process> under $TMPDIR,
  // or /tmp. Absolute. Fails when the path of a socket in it would be too long.
  static Result<std::string> ChoosePath();
  // Makes it, with mode 0700. Fails when it exists already.
  static Result<PrivateDirectory> Create(std::string path);

  PrivateDirectory(PrivateDirectory&& other) noexcept;
  PrivateDirectory& operator=(PrivateDirectory&&) = delete;
  ~PrivateDirectory();

  // Absolute.
  const std::string& path() const { return path_; }
  std::string socket_path() const;

 private:
  explicit PrivateDirectory(std::string path);

  std::string path_;
};

// Removes `path` and what is in it, trying again for a second while something is being added.
void RemoveDirectory(const std::string& path);

}  // namespace ronde::launch
