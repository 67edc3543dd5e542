#include "core/control/coordinator.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/clock.h"
#include "core/control/description.h"

namespace ronde {
namespace {

std::string WhatOf(wire::Subject subject, const std::string& key, const wire::Proposal& proposal) {
  if (subject != wire::SUBJECT_NAME) return fmt::format("set '{}'", key);
  const auto kind = static_cast<OpKind>(proposal.descriptor().kind());
  return fmt::format("{} '{}'", OpKindName(kind), key);
}

}  // namespace

Coordinator::Coordinator(Board board)
    : board_(std::move(board)), once_position_(kMaxIds - kCachedIds) {}

std::vector<DecisionWithFds> Coordinator::Add(int r, const wire::Proposal& proposal,
                                              std::vector<UniqueFd> fds) {
  std::vector<DecisionWithFds> ready;
  const auto id = std::make_pair(static_cast<int>(proposal.subject()), proposal.key());
  Ballot& ballot = ballots_[id];
  if (ballot.present.empty()) {
    const auto n = static_cast<size_t>(board_.num_ranks());
    ballot.proposals.resize(n);
    ballot.fds.resize(n);
    ballot.present.resize(n);
    ballot.since_ns = NowNs();
  }
  const auto index = static_cast<size_t>(r);
  // A rank has one proposal per subject in flight (names in flight are unique), so a second one
  // cannot come.
  if (ballot.present[index]) return ready;
  ballot.present[index] = true;
  ballot.proposals[index] = proposal;
  ballot.fds[index] = std::move(fds);
  if (++ballot.count < board_.num_ranks()) return ready;
  ready.push_back(Decide(proposal.key(), &ballot));
  ballots_.erase(id);
  return ready;
}

Status Coordinator::Compare(const std::string& key, const Ballot& ballot) const {
  const wire::Subject subject = ballot.proposals.front().subject();
  const std::string what = WhatOf(subject, key, ballot.proposals.front());
  std::vector<Description> descriptions;
  for (size_t r = 0; r < ballot.proposals.size(); ++r) {
    const wire::Proposal& proposal = ballot.proposals[r];
    if (proposal.code() != 0) {
      return Status(static_cast<Code>(proposal.code()),
                    fmt::format("{}: rank {}: {}", what, r, proposal.error()));
    }
    Result<Description> description = FromWire(proposal.descriptor());
    if (!description.ok()) return description.status();
    descriptions.push_back(std::move(*description));
  }
  return CompareDescriptions(what, descriptions);
}

DecisionWithFds Coordinator::Decide(const std::string& key, Ballot* ballot) {
  const wire::Subject subject = ballot->proposals.front().subject();
  DecisionWithFds out;
  out.decision.set_subject(subject);
  out.decision.set_key(key);
  Status agreed = Compare(key, *ballot);
  if (agreed.ok() && subject == wire::SUBJECT_NAME) agreed = GiveId(&out.decision);
  out.decision.set_code(static_cast<uint32_t>(agreed.code()));
  out.decision.set_error(std::string(agreed.message()));
  if (!agreed.ok()) return out;
  for (std::vector<UniqueFd>& fds : ballot->fds) {
    for (UniqueFd& fd : fds) out.fds.push_back(std::move(fd));
  }
  return out;
}

Status Coordinator::GiveId(wire::Decision* decision) {
  if (next_cached_id_ < kCachedIds) {
    decision->set_id(next_cached_id_++);
    return Status::Ok();
  }
  // The cache is full: this name gets an id for one operation, which may go round once every rank
  // has consumed its last use.
  uint64_t consumed = kInFlight - 1;
  for (int r = 0; r < board_.num_ranks(); ++r) {
    consumed = std::min(consumed, board_.log_cursor(r).load(std::memory_order_seq_cst));
  }
  for (uint32_t tried = 0; tried < once_position_.size(); ++tried) {
    const uint32_t index = next_once_;
    next_once_ = (next_once_ + 1) % static_cast<uint32_t>(once_position_.size());
    if (once_position_[index] > consumed) continue;
    once_position_[index] = kInFlight;
    decision->set_id(kCachedIds + index);
    decision->set_once(true);
    return Status::Ok();
  }
  return Status::Unsupported(fmt::format(
      "more than {} names have been used and {} further ones are in flight; reuse names, "
      "or wait for some of these works first",
      kCachedIds, once_position_.size()));
}

void Coordinator::OnceConsumed(uint32_t id, uint64_t position) {
  if (id >= kCachedIds) once_position_[id - kCachedIds] = position;
}

std::vector<Coordinator::Open> Coordinator::open() const {
  std::vector<Open> all;
  for (const auto& [id, ballot] : ballots_) {
    Open& open = all.emplace_back();
    open.since_ns = ballot.since_ns;
    for (size_t r = 0; r < ballot.present.size(); ++r) {
      (ballot.present[r] ? open.present : open.missing).push_back(static_cast<int>(r));
    }
    const auto first = static_cast<size_t>(open.present.front());
    open.what = WhatOf(static_cast<wire::Subject>(id.first), id.second, ballot.proposals[first]);
  }
  return all;
}

}  // namespace ronde
