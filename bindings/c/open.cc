// The composition root: the one place that knows which runtimes and backends are linked in.
#include <memory>

#include "backends/shm/shm_backend.h"
#include "core/runtime/group_runtime.h"
#include "core/runtime/solo_runtime.h"
#include "ronde/runtime.h"

namespace ronde {
namespace {

std::shared_ptr<BackendRegistry> LinkedBackends() {
  auto registry = std::make_shared<BackendRegistry>();
  registry->Add(shm::MakeShmBackend());
  return registry;
}

}  // namespace

Result<std::unique_ptr<Runtime>> Open(const Config& config, const WaitOptions& options) {
  if (config.size == 1) return SoloRuntime::Create(config);
  return CreateGroupRuntime(config, LinkedBackends(), options);
}

std::vector<BackendReport> DescribeBackends() {
  std::vector<BackendReport> reports;
  const std::shared_ptr<BackendRegistry> registry = LinkedBackends();
  for (const auto& backend : registry->backends()) {
    reports.push_back({std::string(backend->name()), true, backend->Describe()});
  }
  return reports;
}

}  // namespace ronde
