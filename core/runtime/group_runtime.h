// GroupRuntime: the Runtime of a job of several ranks on one host.
#pragma once

#include <memory>

#include "core/base/shared_memory.h"
#include "core/exec/backend.h"
#include "ronde/config.h"
#include "ronde/runtime.h"

namespace ronde {

// `backends` must outlive the Runtime. `mappings`: Runtimes of one process that share it see shared
// memory at the same addresses; null: a cache of its own.
Result<std::unique_ptr<Runtime>> CreateGroupRuntime(
    const Config& config, BackendRegistry* backends, const WaitOptions& options = {},
    std::shared_ptr<MappingCache> mappings = nullptr);

}  // namespace ronde
