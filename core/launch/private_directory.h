// PrivateDirectory: the folder that holds a job's rendezvous socket.
#pragma once

#include <string>

#include "ronde/status.h"

namespace ronde::launch {

// Owned by the running job; one thread; removed with its content when it goes. When the launcher is
// killed, the Keeper removes it.
class PrivateDirectory {
 public:
  // Makes ronde-<uid>-<pid>-<start time of the process> under $TMPDIR, or /tmp, with mode 0700.
  // Fails when it exists already, or when a socket's path in it would be too long.
  static Result<PrivateDirectory> Create();

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
