#include "core/exec/negotiator.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>

#include <fmt/format.h>

#include "core/base/clock.h"

namespace ronde {

Negotiator::Negotiator(Board board, int rank, const Doorbell* doorbell,
                       std::vector<std::unique_ptr<Channel>> channels, RaiseFn raise)
    : board_(std::move(board)),
      rank_(rank),
      doorbell_(doorbell),
      raise_(std::move(raise)),
      coordinator_(rank == 0 ? std::make_unique<Coordinator>(board_) : nullptr),
      channels_(std::move(channels)) {}

Status Negotiator::Watch(int epoll_fd) {
  epoll_fd_ = epoll_fd;
  for (const auto& channel : channels_) {
    if (channel == nullptr) continue;
    epoll_event event{};
    event.events = EPOLLIN;
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, channel->fd(), &event) != 0) {
      return Status::FromErrno("epoll_ctl");
    }
  }
  return Status::Ok();
}

void Negotiator::Propose(const wire::Proposal& proposal, const std::vector<int>& fds,
                         Answer answer) {
  awaiting_[{static_cast<int>(proposal.subject()), proposal.key()}] = {std::move(answer), NowNs()};
  if (rank_ == 0) {
    std::vector<UniqueFd> own;
    for (const int fd : fds) own.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    Collect(0, proposal, std::move(own));
    return;
  }
  // Without a channel rank 0 has left, and open() says so.
  if (channels_[0] == nullptr) return;
  const Status sent = channels_[0]->Send(FrameType::kProposal, proposal.SerializeAsString(), fds);
  if (!sent.ok() && sent.code() != Code::kPeerLost) raise_(rank_, sent);
  // The progress thread sends what the socket did not take.
  if (channels_[0]->wants_write()) doorbell_->RingSelf();
}

bool Negotiator::proposed(const wire::Proposal& proposal) const {
  return awaiting_.contains({static_cast<int>(proposal.subject()), proposal.key()});
}

bool Negotiator::Poll() {
  bool busy = false;
  for (size_t r = 0; r < channels_.size(); ++r) {
    while (channels_[r] != nullptr && Receive(static_cast<int>(r))) busy = true;
  }
  return busy;
}

bool Negotiator::wants_write() const {
  return std::any_of(channels_.begin(), channels_.end(), [](const auto& channel) {
    return channel != nullptr && channel->wants_write();
  });
}

bool Negotiator::Receive(int r) {
  Channel* channel = channels_[static_cast<size_t>(r)].get();
  if (channel->wants_write() && !channel->Flush().ok()) {
    Close(r);
    return true;
  }
  Frame frame;
  const Result<bool> received = channel->Receive(&frame);
  if (!received.ok()) {
    if (received.status().code() != Code::kPeerLost) raise_(r, received.status());
    Close(r);
    return true;
  }
  if (!*received) return false;
  if (rank_ == 0) {
    wire::Proposal proposal;
    if (frame.type != FrameType::kProposal || !proposal.ParseFromString(frame.body)) {
      raise_(r, Status::Internal(fmt::format("rank {} sent a malformed proposal", r)));
      return true;
    }
    Collect(r, proposal, std::move(frame.fds));
  } else {
    DecisionWithFds decision;
    if (frame.type != FrameType::kDecision || !decision.decision.ParseFromString(frame.body)) {
      raise_(r, Status::Internal("rank 0 sent a malformed decision"));
      return true;
    }
    decision.fds = std::move(frame.fds);
    Deliver(std::move(decision));
  }
  return true;
}

void Negotiator::Close(int r) {
  // A forked child may hold a copy of the socket, so that closing alone would leave it in epoll.
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, channels_[static_cast<size_t>(r)]->fd(), nullptr);
  channels_[static_cast<size_t>(r)].reset();
  // A closed socket is no proof of death by itself: whoever leaves announces it on the board first.
  if (board_.phase(r).load(std::memory_order_seq_cst) != static_cast<uint32_t>(Phase::kLeft)) {
    raise_(r, Status::PeerLost(fmt::format("rank {} (process {}) closed its control channel", r,
                                           board_.process_id(r).load())));
  }
}

void Negotiator::Collect(int r, const wire::Proposal& proposal, std::vector<UniqueFd> fds) {
  for (DecisionWithFds& ready : coordinator_->Add(r, proposal, std::move(fds))) {
    std::vector<int> raw;
    for (const UniqueFd& fd : ready.fds) raw.push_back(fd.get());
    const std::string body = ready.decision.SerializeAsString();
    for (const auto& channel : channels_) {
      if (channel == nullptr) continue;
      const Status sent = channel->Send(FrameType::kDecision, body, raw);
      // A rank that is gone is noticed by its channel's end.
      if (!sent.ok() && sent.code() != Code::kPeerLost) raise_(0, sent);
      if (channel->wants_write()) doorbell_->RingSelf();
    }
    Deliver(std::move(ready));
  }
}

void Negotiator::Deliver(DecisionWithFds decision) {
  const auto it =
      awaiting_.find({static_cast<int>(decision.decision.subject()), decision.decision.key()});
  if (it == awaiting_.end()) return;
  const Answer answer = std::move(it->second.answer);
  awaiting_.erase(it);
  answer(std::move(decision));
}

std::vector<Coordinator::Open> Negotiator::open(int64_t grace_ns) const {
  if (coordinator_ != nullptr) return coordinator_->open();
  if (awaiting_.empty()) return {};
  const auto& [key, oldest] = *std::min_element(
      awaiting_.begin(), awaiting_.end(),
      [](const auto& a, const auto& b) { return a.second.since_ns < b.second.since_ns; });
  return {
      {fmt::format("the agreement on '{}'", key.second), oldest.since_ns + grace_ns, {rank_}, {0}}};
}

void Negotiator::OnceConsumed(uint32_t id, uint64_t position) {
  if (coordinator_ != nullptr) coordinator_->OnceConsumed(id, position);
}

void Negotiator::Fail(const Status& error) {
  auto awaiting = std::move(awaiting_);
  awaiting_.clear();
  for (auto& [key, awaited] : awaiting) {
    DecisionWithFds failed;
    failed.decision.set_code(static_cast<uint32_t>(error.code()));
    failed.decision.set_error(std::string(error.message()));
    awaited.answer(std::move(failed));
  }
}

}  // namespace ronde
