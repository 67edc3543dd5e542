// The ranks of a job for tests: as threads of this process over one mapping, or as processes that
// may be killed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/shared_memory.h"
#include "core/exec/backend.h"
#include "ronde/config.h"
#include "ronde/runtime.h"

namespace ronde::testing {

// A private directory for a rendezvous socket; removed with its contents at the end.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The configuration of one rank of a job of `size` ranks that meet in `dir`.
Config RankConfig(int rank, int size, const TempDir& dir);

// The backends that Ronde links in.
BackendRegistry& Backends();

using RankFn = std::function<void(Runtime&)>;

// Runs fn on `size` ranks, each a thread with its own Runtime; all Runtimes share one mapping
// cache. `adjust` may change each rank's configuration. Every Runtime is shut down after all ranks
// are through. A rank that cannot join is a test failure.
void RunRankThreads(int size, const RankFn& fn,
                    const std::function<void(Config&)>& adjust = nullptr);

// How a rank's process ended.
struct RankExit {
  int status = 0;  // exit status, or -1
  int signal = 0;  // that ended it, or 0
};

// Runs fn on `size` ranks, each a forked process with its own Runtime. A process exits with 0 when
// fn recorded no test failure, and with 1 otherwise. `meddle` runs in the parent meanwhile, and may
// kill processes.
std::vector<RankExit> RunRankProcesses(
    int size, const RankFn& fn,
    const std::function<void(const std::vector<pid_t>&)>& meddle = nullptr,
    const std::function<void(Config&)>& adjust = nullptr);

}  // namespace ronde::testing
