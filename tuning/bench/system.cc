#include "tuning/bench/system.h"

#include <unistd.h>

#include <fstream>

namespace ronde::bench {

int64_t LastLevelCacheBytes() {
  constexpr int64_t kDefault = 32 << 20;
  const long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return l3 > 0 ? l3 : kDefault;
}

int64_t AvailableMemoryBytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  int64_t kib = 0;
  std::string unit;
  while (file >> key >> kib && std::getline(file, unit)) {
    if (key == "MemAvailable:") return kib * 1024;
  }
  return INT64_MAX;
}

Status WriteTextFile(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.flush();
  return file ? Status::Ok() : Status::FromErrno(path);
}

}  // namespace ronde::bench
