#include "tuning/bench/peers/driver.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "core/base/clock.h"
#include "tuning/bench/peers/protocol.h"

namespace ronde::bench {
namespace {

// False at end of file or on an error.
bool ReadAll(int fd, void* data, size_t bytes) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = read(fd, at, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

bool WriteAll(int fd, const void* data, size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = send(fd, at, bytes, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += put;
    bytes -= static_cast<size_t>(put);
  }
  return true;
}

template <size_t kSize>
void CopyText(char (&to)[kSize], const std::string& from) {
  std::snprintf(to, kSize, "%s", from.c_str());
}

Result<int> Connect(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  CopyText(address.sun_path, path);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return Status::FromErrno("socket");
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    const Status status = Status::FromErrno(path);
    close(fd);
    return status;
  }
  return fd;
}

// Serves one connection; keeps count of the operations since Prepare.
class Server {
 public:
  explicit Server(Candidate* candidate) : candidate_(candidate) {}

  Status Obey(const Command& command, std::vector<int64_t>* stamps) {
    stamps->clear();
    switch (command.kind) {
      case CommandKind::kPrepare:
        iteration_ = 0;
        return candidate_->Prepare(command.bytes);
      case CommandKind::kRun:
        return RunBlock(command.buffers, command.plan, stamps);
      case CommandKind::kQuit:
        break;
    }
    return Status::Ok();
  }

 private:
  Status RunBlock(Buffers buffers, const BlockPlan& plan, std::vector<int64_t>* stamps) {
    stamps->reserve(static_cast<size_t>(plan.samples) + 1);
    RONDE_RETURN_IF_ERROR(candidate_->BeginSample());
    for (int64_t k = 0; k < plan.warmup; ++k) {
      RONDE_RETURN_IF_ERROR(candidate_->Run(buffers, iteration_++));
    }
    stamps->push_back(NowNs());
    for (int64_t sample = 0; sample < plan.samples; ++sample) {
      RONDE_RETURN_IF_ERROR(candidate_->BeginSample());
      for (int64_t k = 0; k < plan.inner; ++k) {
        RONDE_RETURN_IF_ERROR(candidate_->Run(buffers, iteration_++));
      }
      stamps->push_back(NowNs());
    }
    return Status::Ok();
  }

  Candidate* const candidate_;
  int64_t iteration_ = 0;
};

}  // namespace

int ServeCandidate(const std::string& socket_path, int rank, int size, const std::string& version,
                   Candidate* candidate) {
  const Result<int> connected = Connect(socket_path);
  if (!connected.ok()) {
    fmt::print(stderr, "rank {}: {}\n", rank, connected.status().ToString());
    return 1;
  }
  const int fd = *connected;
  Hello hello;
  hello.rank = rank;
  hello.size = size;
  CopyText(hello.version, version);
  bool alive = WriteAll(fd, &hello, sizeof hello);
  Server server(candidate);
  Command command;
  std::vector<int64_t> stamps;
  Status status;
  while (alive && status.ok() && ReadAll(fd, &command, sizeof command) &&
         command.kind != CommandKind::kQuit) {
    status = server.Obey(command, &stamps);
    Reply reply;
    if (!status.ok()) {
      fmt::print(stderr, "rank {}: {}\n", rank, status.ToString());
      CopyText(reply.error, fmt::format("rank {}: {}", rank, status.ToString()));
    }
    reply.stamps = static_cast<int64_t>(stamps.size());
    alive = WriteAll(fd, &reply, sizeof reply) &&
            WriteAll(fd, stamps.data(), stamps.size() * sizeof(int64_t));
  }
  close(fd);
  return status.ok() ? 0 : 1;
}

}  // namespace ronde::bench
