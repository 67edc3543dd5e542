#include "core/base/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include <fmt/format.h>

namespace ronde {

Result<UniqueFd> CreateSharedMemory(const std::string& name, size_t bytes) {
  UniqueFd fd(memfd_create(("ronde-" + name).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Status::FromErrno(fmt::format("memfd_create for {}", name));
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return Status::FromErrno(fmt::format("resizing shared memory {} to {} bytes", name, bytes));
  }
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Status::FromErrno(fmt::format("sealing shared memory {}", name));
  }
  return fd;
}

Mapping::~Mapping() {
  munmap(data_, bytes_);
}

Status Mapping::Populate() const {
#ifdef MADV_POPULATE_WRITE
  if (madvise(data_, bytes_, MADV_POPULATE_WRITE) == 0) return Status::Ok();
  if (errno == ENOMEM || errno == EFAULT || errno == EHWPOISON) {
    return Status::OutOfMemory(fmt::format("no memory for {} bytes of shared memory", bytes_));
  }
#endif
  // Kernels before 5.14: touch by hand. Adding zero keeps what others have written.
  constexpr size_t kPage = 4096;
  for (size_t offset = 0; offset < bytes_; offset += kPage) {
    __atomic_fetch_add(reinterpret_cast<char*>(data_) + offset, 0, __ATOMIC_RELAXED);
  }
  return Status::Ok();
}

Result<std::shared_ptr<Mapping>> MappingCache::Map(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0) return Status::FromErrno("fstat of shared memory");
  const std::lock_guard<std::mutex> lock(mutex_);
  std::weak_ptr<Mapping>& known = mappings_[{info.st_dev, info.st_ino}];
  if (std::shared_ptr<Mapping> mapping = known.lock()) return mapping;
  const auto bytes = static_cast<size_t>(info.st_size);
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED)
    return Status::FromErrno(fmt::format("mapping {} bytes of shared memory", bytes));
  auto mapping = std::make_shared<Mapping>(data, bytes);
  known = mapping;
  return mapping;
}

}  // namespace ronde
