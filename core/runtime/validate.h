// The checks of a request's arguments that one rank can make alone; shared by every Runtime.
#pragma once

#include <cstdint>
#include <string_view>

#include "ronde/request.h"
#include "ronde/set.h"
#include "ronde/status.h"

namespace ronde {

// A name of at most kMaxNameBytes. Apart from the rest because Submit returns this error, while
// those of ValidateRequest complete the work on every rank.
Status ValidateName(std::string_view name);

// Everything else that rank `rank` of `size` can see without its peers: request.invalid, shapes,
// counts, dtypes, devices, outputs, operator, scale factors, root, splits. InvalidArgument (or
// Unsupported, for a device without a backend) names the operation, the thing, its value and what
// is allowed. Does not check ValidateName, nor what depends on other ranks (the outputs' counts of
// kAllgather and kAlltoall, agreement).
Status ValidateRequest(const Request& request, int rank, int size);

// The same for a set: names, shapes, operator, scale factors.
Status ValidateSetSpec(const SetSpec& spec);

// Rows of dimension 0 that `rank` receives from a reducescatter of `rows`: earlier ranks take the
// remainder.
constexpr int64_t ReducescatterRows(int64_t rows, int rank, int size) {
  return rows / size + (rank < rows % size ? 1 : 0);
}

}  // namespace ronde
