// The shared-memory backend, by each of its schedules.
#include "tests/conformance/conformance.h"

namespace ronde::conformance {
namespace {

const std::vector<int> kRanks = {1, 2, 3, 4, 5, 7, 8};

}  // namespace

RONDE_INSTANTIATE_CONFORMANCE(Shm, BackendUnderTest{"oneshot", "", kRanks, 1'200'000},
                              BackendUnderTest{"cached", "*:0-=shm/cached@64K", kRanks, 200'000},
                              BackendUnderTest{"streamed", "*:0-=shm/streamed@64K", kRanks,
                                               200'000});

}  // namespace ronde::conformance
