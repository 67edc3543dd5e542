// Negotiator: the slow path. What the ranks must agree on before they can go on by themselves
// (names, sets) is proposed to rank 0 over sockets, and rank 0 answers all ranks alike.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/fd.h"
#include "core/control/board.h"
#include "core/control/channel.h"
#include "core/control/coordinator.h"
#include "core/control/doorbell.h"
#include "core/control/messages.pb.h"
#include "ronde/status.h"

namespace ronde {

// Owned by the engine; every method needs the token.
class Negotiator {
 public:
  using Answer = std::function<void(DecisionWithFds)>;
  // Ends the group; `culprit` is to blame.
  using RaiseFn = std::function<void(int culprit, const Status&)>;

  // channels[r]: to rank r; on ranks other than 0 only that to rank 0.
  Negotiator(Board board, int rank, const Doorbell* doorbell,
             std::vector<std::unique_ptr<Channel>> channels, RaiseFn raise);

  // Adds the channels to an epoll instance, which must outlive this object's use.
  Status Watch(int epoll_fd);

  // Rank 0 answers when every rank has proposed; then `answer` is called, once, from here or from
  // Poll. A subject may be proposed again only after that.
  void Propose(const wire::Proposal& proposal, const std::vector<int>& fds, Answer answer);
  bool proposed(const wire::Proposal& proposal) const;
  // Are there proposals of this rank without an answer?
  bool awaiting() const { return !awaiting_.empty(); }
  // Or, on rank 0, of any rank?
  bool pending() const { return awaiting() || (coordinator_ != nullptr && !coordinator_->empty()); }

  // Takes what has come, sends what waits; true when something happened.
  bool Poll();
  // Is there something that a socket did not take?
  bool wants_write() const;

  // What is under way, and for whom it waits. Rank 0 alone knows who has proposed; the others only
  // whether rank 0 still answers, and give it `grace_ns` more.
  std::vector<Coordinator::Open> open(int64_t grace_ns) const;

  // As Coordinator's.
  void OnceConsumed(uint32_t id, uint64_t position);
  // Answers everything that this rank awaits with `error`.
  void Fail(const Status& error);

 private:
  using Key = std::pair<int, std::string>;  // subject, key

  bool Receive(int r);
  void Close(int r);
  void Collect(int r, const wire::Proposal& proposal, std::vector<UniqueFd> fds);
  void Deliver(DecisionWithFds decision);

  const Board board_;
  const int rank_;
  const Doorbell* const doorbell_;
  const RaiseFn raise_;
  const std::unique_ptr<Coordinator> coordinator_;  // on rank 0
  std::vector<std::unique_ptr<Channel>> channels_;
  int epoll_fd_ = -1;
  struct Awaited {
    Answer answer;
    int64_t since_ns = 0;
  };
  std::map<Key, Awaited> awaiting_;
};

}  // namespace ronde
