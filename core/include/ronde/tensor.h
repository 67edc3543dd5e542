// TensorView: memory that somebody else owns, seen as an array.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ronde/dtype.h"

namespace ronde {

enum class DeviceType : uint8_t { kCpu = 0, kCuda = 1 };

struct Device {
  DeviceType type = DeviceType::kCpu;
  int32_t index = 0;
  bool operator==(const Device&) const = default;
};

// A contiguous run of `count` elements. Not owning: the memory must stay valid and, while an
// operation is in flight, untouched until that operation's work is done.
struct TensorView {
  void* data = nullptr;
  int64_t count = 0;  // elements
  DType dtype = DType::kFloat32;
  Device device;

  int64_t size_bytes() const { return count * static_cast<int64_t>(DTypeSize(dtype)); }
};

}  // namespace ronde
