// Memory shared by the processes of a host: sealed memfds, passed by descriptor, so that nothing
// has a name and nothing outlives its last user.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "core/base/fd.h"
#include "ronde/status.h"

namespace ronde {

// A new memfd of `bytes` zero bytes, sealed against resizing. `name` shows in /proc/PID/maps only.
Result<UniqueFd> CreateSharedMemory(const std::string& name, size_t bytes);

// A readable and writable mapping of a whole memfd; ends with its last holder.
class Mapping {
 public:
  Mapping(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t bytes() const { return bytes_; }
  // Touches every page now (about 0.8 s per GiB when they are new, 0.3 s when another process made
  // them). OutOfMemory when there is no memory for them.
  Status Populate() const;

 private:
  void* data_;
  size_t bytes_;
};

// Maps each memfd once per cache, however many Runtimes of a process ask for it: ranks that are
// threads of one process then see the same addresses, which is what lets a race detector follow
// them. Thread-safe.
class MappingCache {
 public:
  Result<std::shared_ptr<Mapping>> Map(int fd);

 private:
  std::mutex mutex_;
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<Mapping>> mappings_;
};

}  // namespace ronde
