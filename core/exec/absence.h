// Absence: says who is waited for, and ends the group when waiting is in vain.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/base/log.h"
#include "core/control/board.h"
#include "ronde/config.h"
#include "ronde/status.h"

namespace ronde {

// Owned by the engine; needs the token.
class Absence {
 public:
  // Ends the group; `culprit` is to blame.
  using RaiseFn = std::function<void(int culprit, const Status&)>;

  Absence(Board board, const Config& config, Logger logger, RaiseFn raise)
      : board_(std::move(board)),
        timeout_ms_(config.timeout_ms),
        warn_ms_(config.stall_warn_ms),
        logger_(logger),
        raise_(std::move(raise)) {}

  // `what` is under way since `since_ns`, the ranks `waiting` wait for those of missing(). Ends the
  // group (true) when one of them has left, or RONDE_TIMEOUT_S have passed; warns once before.
  bool Check(const std::string& what, int64_t since_ns,
             const std::function<std::vector<int>()>& missing, const std::vector<int>& waiting,
             int64_t now_ns);

 private:
  bool left(int r) const;

  const Board board_;
  const int64_t timeout_ms_;
  const int64_t warn_ms_;
  const Logger logger_;
  const RaiseFn raise_;
  std::unordered_set<std::string> warned_;
};

}  // namespace ronde
