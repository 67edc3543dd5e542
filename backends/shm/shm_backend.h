// The shared-memory backend: always there, inside one host.
#pragma once

#include <memory>

#include "core/exec/backend.h"

namespace ronde::shm {

std::unique_ptr<Backend> MakeShmBackend();

}  // namespace ronde::shm
