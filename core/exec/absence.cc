#include "core/exec/absence.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/clock.h"
#include "core/control/description.h"

namespace ronde {

bool Absence::left(int r) const {
  return board_.phase(r).load(std::memory_order_seq_cst) == static_cast<uint32_t>(Phase::kLeft);
}

bool Absence::Check(const std::string& what, int64_t since_ns,
                    const std::function<std::vector<int>()>& missing,
                    const std::vector<int>& waiting, int64_t now_ns) {
  std::vector<int> late = missing();
  std::vector<int> gone;
  std::copy_if(late.begin(), late.end(), std::back_inserter(gone),
               [this](int r) { return left(r); });
  // Whoever has left may have done its part just before; from now on it does nothing more.
  if (!gone.empty()) late = missing();
  for (const int r : gone) {
    if (std::find(late.begin(), late.end(), r) == late.end()) continue;
    raise_(r, Status::PeerLost(
                  fmt::format("rank {} has left the job (shutdown), but {} wait{} for it in {}", r,
                              RankList(waiting), waiting.size() == 1 ? "s" : "", what)));
    return true;
  }
  if (late.empty()) return false;
  const int64_t waited_ms = (now_ns - since_ns) / kNsPerMs;
  if (waited_ms > timeout_ms_) {
    raise_(late.front(),
           Status::Timeout(fmt::format("{}: {} did not arrive within {} s (RONDE_TIMEOUT_S)", what,
                                       RankList(late), static_cast<double>(timeout_ms_) / 1000)));
    return true;
  }
  if (waited_ms > warn_ms_ && warned_.insert(what).second) {
    RONDE_LOG(logger_, kWarning, "{} has waited {} s for {}", what, waited_ms / 1000,
              RankList(late));
  }
  return false;
}

}  // namespace ronde
