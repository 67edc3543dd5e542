// NamedQueue: named operations, from Submit to their place in the order that all ranks agree on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/control/description.h"
#include "core/control/order_log.h"
#include "core/exec/lane.h"
#include "core/exec/work_state.h"

namespace ronde {

// Owned by the engine; every method needs the token.
class NamedQueue {
 public:
  // Asks the coordinator for an id for `name`; the answer comes through OnDecision.
  using AskFn = std::function<void(const std::string& name, const Description& description)>;

  NamedQueue(Board board, int rank, int64_t fusion_bytes, Lane* lane, const Doorbell* doorbell,
             AskFn ask, CompleteFn complete);

  // A submitted work with a name that is not in flight. Takes over one reference.
  void Add(WorkState* work);
  // The coordinator's answer for a name: an id, or an error that all ranks get.
  void OnDecision(const std::string& name, const Status& status, uint32_t id, bool once);
  // Hands what has been ordered to the lane; true when something was.
  bool Step();

  // Works that wait for other ranks.
  const std::unordered_map<uint32_t, WorkState*>& announced() const { return announced_; }
  std::vector<int> Missing(uint32_t id) const { return log_.Missing(id); }
  bool empty() const { return announced_.empty() && asked_.empty(); }
  void Fail(const Status& error);

  // Called with each single-use id and the log position after it.
  std::function<void(uint32_t id, uint64_t position)> on_once_consumed;

 private:
  void Announce(WorkState* work, uint32_t id);
  void ClaimComplete();
  void ClaimBatch(WorkState* work);

  OrderLog log_;
  const int64_t fusion_bytes_;
  Lane* const lane_;
  const Doorbell* const doorbell_;
  const AskFn ask_;
  const CompleteFn complete_;
  std::unordered_map<std::string, uint32_t> ids_;       // known names
  std::unordered_map<std::string, WorkState*> asked_;   // waiting for an id
  std::unordered_map<uint32_t, WorkState*> announced_;  // waiting for their place in the log
  std::vector<uint32_t> batch_;
  bool look_ = false;  // for complete operations to claim
};

}  // namespace ronde
