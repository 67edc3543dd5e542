#include "backends/shm/shm_backend.h"

#include <fmt/format.h>

#include <utility>

#include "backends/shm/shm_bucket.h"
#include "backends/shm/shm_lane.h"

namespace ronde::shm {
namespace {

class ShmBackend : public Backend {
 public:
  std::string_view name() const override { return "shm"; }
  std::string Describe() const override {
    return fmt::format("shared memory inside a host: all collectives, all dtypes, up to {} ranks",
                       kMaxLocalRanks);
  }
  Result<std::unique_ptr<BackendLane>> OpenLane(const BackendContext& context, int lane) override {
    return std::unique_ptr<BackendLane>(std::make_unique<ShmLane>(context, lane));
  }
  Result<std::unique_ptr<BackendBucket>> OpenBucket(const BackendContext& context,
                                                    SlotBucket bucket) override {
    return std::unique_ptr<BackendBucket>(std::make_unique<ShmBucket>(context, std::move(bucket)));
  }
};

}  // namespace

std::unique_ptr<Backend> MakeShmBackend() {
  return std::make_unique<ShmBackend>();
}

}  // namespace ronde::shm
