// The rank side of the peers' protocol: every candidate is timed by the same code.
#pragma once

#include <cstdint>
#include <string>

#include "ronde/status.h"
#include "tuning/bench/limit.h"

namespace ronde::bench {

// One rank of one candidate: a float32 sum over the ranks. Made and called by the process's main
// thread. Errors end the measurement and are shown to the user.
class Candidate {
 public:
  virtual ~Candidate() = default;
  // Collective. Memory of every kind that the candidate has, for operations of `bytes`; it
  // replaces that of the previous call.
  virtual Status Prepare(int64_t bytes) = 0;
  // Collective. The i-th operation since Prepare; returns when its result is there. Unsupported
  // when the candidate has no such buffers.
  virtual Status Run(Buffers buffers, int64_t i) = 0;
  // Called before each sample (see BlockPlan), within its time.
  virtual Status BeginSample() { return Status::Ok(); }
};

// Connects to the orchestrator at `socket_path` as `rank` of `size` and obeys until it says quit or
// goes away. Returns the process's exit status; errors go to stderr too.
int ServeCandidate(const std::string& socket_path, int rank, int size, const std::string& version,
                   Candidate* candidate);

}  // namespace ronde::bench
