// The composition root: the one place that knows which runtimes and backends are linked in.
#include <fmt/format.h>

#include "core/runtime/solo_runtime.h"
#include "ronde/runtime.h"

namespace ronde {

Result<std::unique_ptr<Runtime>> Open(const Config& config, const WaitOptions&) {
  if (config.size == 1) return SoloRuntime::Create(config);
  return Status::Unsupported(
      fmt::format("a job of size {} needs a backend, and none is built in", config.size));
}

std::vector<BackendReport> DescribeBackends() {
  return {};
}

}  // namespace ronde
