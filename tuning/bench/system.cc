#include "tuning/bench/system.h"

#include <fstream>

namespace ronde::bench {

int64_t LastLevelCacheBytes() {
  // Not sysconf, which multiplies by what a hypervisor says of the host.
  constexpr int64_t kDefault = 32 << 20;
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");  // "32768K"
  int64_t kib = 0;
  return file >> kib && kib > 0 ? kib << 10 : kDefault;
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
