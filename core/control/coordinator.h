// Coordinator: rank 0's side of the slow path. Collects every rank's proposal on a subject,
// compares them, and answers all ranks alike.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/fd.h"
#include "core/control/board.h"
#include "core/control/messages.pb.h"
#include "ronde/status.h"

namespace ronde {

struct DecisionWithFds {
  wire::Decision decision;
  std::vector<UniqueFd> fds;
};

// Used by the token's holder of rank 0. No I/O: what comes out is sent by the engine.
class Coordinator {
 public:
  explicit Coordinator(Board board);

  // Rank r's proposal. Returns the decisions that became ready: none, or one.
  std::vector<DecisionWithFds> Add(int r, const wire::Proposal& proposal,
                                   std::vector<UniqueFd> fds);

  // This rank has consumed the order log up to `position`, with an operation of a single-use id in
  // it.
  void OnceConsumed(uint32_t id, uint64_t position);

  // A subject on which some ranks have proposed and others have not yet.
  struct Open {
    std::string what;  // "allreduce 'x'"
    int64_t since_ns = 0;
    std::vector<int> present;
    std::vector<int> missing;
  };
  bool empty() const { return ballots_.empty(); }
  std::vector<Open> open() const;

 private:
  struct Ballot {
    int64_t since_ns = 0;  // its first proposal
    std::vector<wire::Proposal> proposals;
    std::vector<std::vector<UniqueFd>> fds;
    std::vector<bool> present;
    int count = 0;
  };
  DecisionWithFds Decide(const std::string& key, Ballot* ballot);
  Status Compare(const std::string& key, const Ballot& ballot) const;
  Status GiveId(wire::Decision* decision);

  const Board board_;
  std::map<std::pair<int, std::string>, Ballot> ballots_;
  uint32_t next_cached_id_ = 0;
  // Single-use ids: the log position after which each one's last operation is consumed; kInFlight
  // while that is unknown.
  static constexpr uint64_t kInFlight = ~uint64_t{0};
  std::vector<uint64_t> once_position_;
  uint32_t next_once_ = 0;
};

}  // namespace ronde
