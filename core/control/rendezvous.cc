#include "core/control/rendezvous.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/clock.h"
#include "core/base/cores.h"
#include "core/control/messages.pb.h"

namespace ronde {
namespace {

constexpr uint32_t kAbi = 1;
constexpr int kPollMs = 50;                        // how often an interrupt is looked for
constexpr int64_t kMinStagingPerRank = 128 << 10;  // two slots of a schedule, whatever the ranks
constexpr int kAnswerMs = 2000;  // by so much rank 0, who can name the missing, gives up first

// A deadline and an interrupt, in one.
// Between two tries to send what a socket did not take.
constexpr useconds_t kWelcomePauseUs = 200;

class Patience {
 public:
  Patience(const Config& config, const WaitOptions& options)
      : deadline_(NowNs() +
                  (config.start_timeout_ms + (config.rank == 0 ? 0 : kAnswerMs)) * kNsPerMs),
        options_(options) {}
  bool expired() const { return NowNs() > deadline_; }
  bool interrupted() const { return options_.keep_waiting && !options_.keep_waiting(); }

 private:
  int64_t deadline_;
  const WaitOptions& options_;
};

Status Interrupted() {
  return Status::Aborted("init was interrupted");
}

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof(address.sun_path) - 1));
  return address;
}

// Only processes of this user (or root) may join: the directory is private, and this holds where it
// is not.
Status CheckPeer(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) {
    return Status::FromErrno("reading a peer's credentials");
  }
  if (peer.uid != geteuid() && peer.uid != 0) {
    return Status::InvalidArgument(fmt::format(
        "process {} of user {} tried to join a job of user {}", peer.pid, peer.uid, geteuid()));
  }
  return Status::Ok();
}

wire::Hello MakeHello(const Config& config, uint64_t rules_hash) {
  wire::Hello hello;
  hello.set_version(RONDE_VERSION);
  hello.set_abi(kAbi);
  hello.set_job(config.job);
  hello.set_rank(static_cast<uint32_t>(config.rank));
  hello.set_size(static_cast<uint32_t>(config.size));
  hello.set_rules_hash(rules_hash);
  hello.set_pid(static_cast<uint32_t>(getpid()));
  for (const int cpu : ReadAffinity()) hello.add_cpus(static_cast<uint32_t>(cpu));
  hello.set_cpu_quota(ReadCpuQuota());
  return hello;
}

// What a rank says must agree with what rank 0 says.
Status CheckHello(const wire::Hello& mine, const wire::Hello& theirs) {
  const uint32_t rank = theirs.rank();
  if (theirs.version() != mine.version() || theirs.abi() != mine.abi()) {
    return Status::Mismatch(fmt::format("rank {} runs Ronde {} (abi {}), rank 0 runs {} (abi {})",
                                        rank, theirs.version(), theirs.abi(), mine.version(),
                                        mine.abi()));
  }
  if (theirs.job() != mine.job()) {
    return Status::Mismatch(
        fmt::format("rank {} belongs to job '{}', rank 0 to '{}'", rank, theirs.job(), mine.job()));
  }
  if (theirs.size() != mine.size()) {
    return Status::Mismatch(fmt::format("rank {} has RONDE_SIZE={}, rank 0 has RONDE_SIZE={}", rank,
                                        theirs.size(), mine.size()));
  }
  if (theirs.rules_hash() != mine.rules_hash()) {
    return Status::Mismatch(fmt::format(
        "rank {} has other selection rules or buffer sizes than rank 0: RONDE_RULES and "
        "RONDE_STAGING_MAX must be the same on all ranks",
        rank));
  }
  return Status::Ok();
}

// Rank 0's side.
class Host {
 public:
  Host(const Config& config, uint64_t rules_hash, MappingCache* mappings)
      : config_(config), mappings_(mappings), hello_(MakeHello(config, rules_hash)) {
    const auto n = static_cast<size_t>(config.size);
    members_.eventfds.resize(n);
    members_.channels.resize(n);
  }

  Result<Membership> Run(const Patience& patience) {
    RONDE_RETURN_IF_ERROR(Listen());
    Allow(hello_);
    members_.eventfds[0] = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!members_.eventfds[0].valid()) return Status::FromErrno("eventfd");
    Status status = Gather(patience);
    unlink(config_.rendezvous.c_str());
    if (status.ok()) status = MakeBoard();
    members_.usable_cores = UsableCores(allowed_);
    const Status welcomed = Welcome(status, patience);
    if (!status.ok()) return status;
    if (!welcomed.ok()) return welcomed;
    return std::move(members_);
  }

 private:
  Status Listen() {
    listener_ = UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener_.valid()) return Status::FromErrno("socket");
    const sockaddr_un address = AddressOf(config_.rendezvous);
    // A socket left by an earlier Runtime of this rank; ours is the only rank 0.
    unlink(config_.rendezvous.c_str());
    if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
        listen(listener_.get(), SOMAXCONN) != 0) {
      return Status::FromErrno(
          fmt::format("listening at RONDE_RENDEZVOUS='{}'", config_.rendezvous));
    }
    return Status::Ok();
  }

  Status Gather(const Patience& patience) {
    int present = 1;
    while (present < config_.size) {
      if (patience.expired()) return Missing();
      if (patience.interrupted()) return Interrupted();
      std::vector<pollfd> polls{{listener_.get(), POLLIN, 0}};
      for (const auto& channel : pending_) polls.push_back({channel->fd(), POLLIN, 0});
      if (poll(polls.data(), polls.size(), kPollMs) < 0 && errno != EINTR) {
        return Status::FromErrno("poll");
      }
      Accept();
      for (size_t i = 0; i < pending_.size();) {
        Frame frame;
        Result<bool> received = pending_[i]->Receive(&frame);
        if (received.ok() && !*received) {
          ++i;
          continue;
        }
        std::unique_ptr<Channel> channel = std::move(pending_[i]);
        pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
        // Whoever goes away before having said who it is was no rank of ours.
        if (!received.ok()) continue;
        RONDE_RETURN_IF_ERROR(Admit(std::move(channel), &frame));
        ++present;
      }
    }
    return Status::Ok();
  }

  void Accept() {
    for (;;) {
      UniqueFd peer(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!peer.valid()) return;
      if (CheckPeer(peer.get()).ok()) {
        pending_.push_back(std::make_unique<Channel>(std::move(peer)));
      }
    }
  }

  Status Admit(std::unique_ptr<Channel> channel, Frame* frame) {
    wire::Hello hello;
    if (frame->type != FrameType::kHello || !hello.ParseFromString(frame->body) ||
        frame->fds.size() != 1) {
      return Status::Internal("a process joined with something that is not a hello");
    }
    const uint32_t rank = hello.rank();
    Status agreed = CheckHello(hello_, hello);
    if (agreed.ok() && rank >= hello_.size()) {
      agreed = Status::Mismatch(fmt::format("process {} calls itself rank {}; must be 0 to {}",
                                            hello.pid(), rank, hello_.size() - 1));
    }
    if (agreed.ok() && (rank == 0 || members_.channels[rank] != nullptr)) {
      agreed = Status::Mismatch(fmt::format(
          "two processes call themselves rank {} (one is process {})", rank, hello.pid()));
    }
    if (!agreed.ok()) {
      refused_.push_back(std::move(channel));
      return agreed;
    }
    members_.eventfds[rank] = std::move(frame->fds[0]);
    members_.channels[rank] = std::move(channel);
    Allow(hello);
    return Status::Ok();
  }

  // Ranks may be pinned to cores of their own, so what they can use together is the union. A quota
  // is that of the group which they share.
  void Allow(const wire::Hello& hello) {
    for (const uint32_t number : hello.cpus()) {
      const auto cpu = static_cast<int>(number);
      const auto at = std::lower_bound(allowed_.cpus.begin(), allowed_.cpus.end(), cpu);
      if (at == allowed_.cpus.end() || *at != cpu) allowed_.cpus.insert(at, cpu);
    }
    const double quota = hello.cpu_quota();
    if (quota > 0 && (allowed_.quota == 0 || quota < allowed_.quota)) allowed_.quota = quota;
  }

  Status Missing() const {
    std::vector<int> missing;
    for (int r = 1; r < config_.size; ++r) {
      if (members_.channels[static_cast<size_t>(r)] == nullptr) missing.push_back(r);
    }
    return Status::Timeout(
        fmt::format("init waited {} s (RONDE_START_TIMEOUT_S) for rank{} {} of {}",
                    static_cast<double>(config_.start_timeout_ms) / 1000,
                    missing.size() > 1 ? "s" : "", fmt::join(missing, ", "), config_.size));
  }

  Status MakeBoard() {
    const uint64_t epoch = static_cast<uint64_t>(NowNs());
    const int64_t staging = std::max(config_.staging_max_bytes, config_.size * kMinStagingPerRank);
    Result<UniqueFd> fd =
        Board::Create(config_.size, static_cast<size_t>(staging), epoch, config_.job);
    if (!fd.ok()) return fd.status();
    board_fd_ = std::move(*fd);
    Result<Board> board = Board::Attach(board_fd_.get(), mappings_, config_.job);
    if (!board.ok()) return board.status();
    members_.board = *board;
    return Status::Ok();
  }

  Status Welcome(const Status& outcome, const Patience& patience) {
    wire::Welcome welcome;
    welcome.set_code(static_cast<uint32_t>(outcome.code()));
    welcome.set_error(std::string(outcome.message()));
    std::vector<int> fds;
    if (outcome.ok()) {
      welcome.set_epoch(members_.board.epoch());
      welcome.set_usable_cores(static_cast<uint32_t>(members_.usable_cores));
      fds.push_back(board_fd_.get());
      for (const UniqueFd& fd : members_.eventfds) fds.push_back(fd.get());
    }
    const std::string body = welcome.SerializeAsString();
    for (auto* group : {&members_.channels, &refused_}) {
      for (const auto& channel : *group) {
        if (channel == nullptr) continue;
        Status sent = channel->Send(FrameType::kWelcome, body, fds);
        while (sent.ok() && channel->wants_write()) {
          if (patience.expired()) {
            return Status::Timeout("init: a rank did not read its welcome (RONDE_START_TIMEOUT_S)");
          }
          if (patience.interrupted()) return Interrupted();
          usleep(kWelcomePauseUs);
          sent = channel->Flush();
        }
        if (sent.ok() || !outcome.ok()) continue;
        if (sent.code() != Code::kPeerLost) return sent;
        return Status::PeerLost("a rank went away while the job was starting");
      }
    }
    return Status::Ok();
  }

  const Config& config_;
  MappingCache* mappings_;
  const wire::Hello hello_;
  UniqueFd listener_;
  UniqueFd board_fd_;
  Membership members_;
  Topology allowed_;  // cpus sorted, no nodes
  std::vector<std::unique_ptr<Channel>> pending_;
  std::vector<std::unique_ptr<Channel>> refused_;
};

Result<UniqueFd> Connect(const Config& config, const Patience& patience) {
  const sockaddr_un address = AddressOf(config.rendezvous);
  useconds_t pause_us = 200;
  for (;;) {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd.valid()) return Status::FromErrno("socket");
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
      return fd;
    }
    // Rank 0 may not be there yet, or its queue may be full.
    if (errno != ENOENT && errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) {
      return Status::FromErrno(
          fmt::format("connecting to RONDE_RENDEZVOUS='{}'", config.rendezvous));
    }
    if (patience.expired()) {
      return Status::Timeout(
          fmt::format("init waited {} s (RONDE_START_TIMEOUT_S) for rank 0 to appear at '{}'",
                      static_cast<double>(config.start_timeout_ms) / 1000, config.rendezvous));
    }
    if (patience.interrupted()) return Interrupted();
    usleep(pause_us);
    pause_us = std::min<useconds_t>(pause_us * 2, 10'000);
  }
}

Result<Membership> Join(const Config& config, uint64_t rules_hash, MappingCache* mappings,
                        const Patience& patience) {
  Result<UniqueFd> socket = Connect(config, patience);
  if (!socket.ok()) return socket.status();
  RONDE_RETURN_IF_ERROR(CheckPeer(socket->get()));
  auto channel = std::make_unique<Channel>(std::move(*socket));
  UniqueFd own_eventfd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!own_eventfd.valid()) return Status::FromErrno("eventfd");
  RONDE_RETURN_IF_ERROR(channel->Send(
      FrameType::kHello, MakeHello(config, rules_hash).SerializeAsString(), {own_eventfd.get()}));
  Frame frame;
  for (;;) {
    Result<bool> received = channel->Receive(&frame);
    if (!received.ok() && received.status().code() == Code::kPeerLost) {
      return Status::PeerLost("rank 0 went away while the job was starting");
    }
    RONDE_RETURN_IF_ERROR(received.status());
    if (*received) break;
    // Rank 0's own deadline is the one that names who is missing; this one covers a stuck rank 0.
    if (patience.expired()) {
      return Status::Timeout(
          fmt::format("init waited {} s (RONDE_START_TIMEOUT_S) for rank 0's answer",
                      static_cast<double>(config.start_timeout_ms) / 1000));
    }
    if (patience.interrupted()) return Interrupted();
    pollfd poll_one{channel->fd(), POLLIN, 0};
    poll(&poll_one, 1, kPollMs);
  }
  wire::Welcome welcome;
  if (frame.type != FrameType::kWelcome || !welcome.ParseFromString(frame.body)) {
    return Status::Internal("rank 0 answered with something that is not a welcome");
  }
  if (welcome.code() != 0) return Status(static_cast<Code>(welcome.code()), welcome.error());
  const auto n = static_cast<size_t>(config.size);
  if (frame.fds.size() != n + 1) return Status::Internal("rank 0's welcome lacks descriptors");
  Result<Board> board = Board::Attach(frame.fds[0].get(), mappings, config.job);
  if (!board.ok()) return board.status();
  Membership members;
  members.board = *board;
  members.usable_cores = static_cast<int>(welcome.usable_cores());
  for (size_t r = 0; r < n; ++r) members.eventfds.push_back(std::move(frame.fds[r + 1]));
  members.channels.resize(n);
  members.channels[0] = std::move(channel);
  return members;
}

}  // namespace

Result<Membership> Meet(const Config& config, uint64_t rules_hash, MappingCache* mappings,
                        const WaitOptions& options) {
  if (config.size > kMaxLocalRanks) {
    return Status::Unsupported(
        fmt::format("{} ranks on one host: at most {} are possible", config.size, kMaxLocalRanks));
  }
  const Patience patience(config, options);
  if (config.rank == 0) return Host(config, rules_hash, mappings).Run(patience);
  return Join(config, rules_hash, mappings, patience);
}

}  // namespace ronde
