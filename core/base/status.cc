#include "ronde/status.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include <fmt/format.h>

namespace ronde {

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kOk:
      return "OK";
    case Code::kInvalidArgument:
      return "InvalidArgument";
    case Code::kMismatch:
      return "Mismatch";
    case Code::kUnsupported:
      return "Unsupported";
    case Code::kNotInitialized:
      return "NotInitialized";
    case Code::kPeerLost:
      return "PeerLost";
    case Code::kTimeout:
      return "Timeout";
    case Code::kAborted:
      return "Aborted";
    case Code::kOutOfMemory:
      return "OutOfMemory";
    case Code::kInternal:
      return "Internal";
  }
  return "Unknown";
}

Status::Status(Code code, std::string message) {
  if (code != Code::kOk) rep_ = std::make_shared<const Rep>(Rep{code, std::move(message)});
}

Status Status::FromErrno(std::string_view what) {
  const int error = errno;
  return Internal(fmt::format("{}: {} ({})", what, std::generic_category().message(error), error));
}

void UsedWithoutValue(const Status& status) {
  fmt::print(stderr, "ronde: a Result was used without a look at its Status, which is {}\n",
             status.ToString());
  std::abort();
}

std::string Status::ToString() const {
  if (ok()) return "OK";
  return fmt::format("{}: {}", CodeName(code()), message());
}

}  // namespace ronde
