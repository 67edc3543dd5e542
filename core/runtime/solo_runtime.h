// SoloRuntime: a job of size 1 at no cost: no thread, no socket, no shared memory.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "core/exec/work_state.h"
#include "core/kernels/reduce.h"
#include "ronde/runtime.h"

namespace ronde {

// Owned by the caller; any thread may call it. Every operation is a local copy or scaling, done
// when Submit returns; its results are those that the same call would have in a larger job whose
// other ranks did not exist.
class SoloRuntime : public Runtime {
 public:
  // InvalidArgument when the configuration is not of a job of size 1 or asks for kernels that this
  // processor lacks.
  static Result<std::unique_ptr<Runtime>> Create(const Config& config);
  ~SoloRuntime() override;

  const Config& config() const override { return config_; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  int local_rank() const override { return 0; }
  int local_size() const override { return 1; }
  int cross_rank() const override { return 0; }
  int cross_size() const override { return 1; }

  Result<Work> Submit(const Request& request,
                      std::function<void(const Status&)> callback = {}) override;
  Status Wait(const Work& work, const WaitOptions& options = {}) override;
  bool Poll(const Work& work) override { return !work.valid() || work.done(); }
  Status Run(const Request& request, const WaitOptions& options = {},
             Work* work = nullptr) override;
  Result<std::unique_ptr<Set>> DeclareSet(const SetSpec& spec,
                                          const WaitOptions& options = {}) override;
  Status health() const override { return CheckUsable(); }
  RuntimeStats stats() const override;
  void Shutdown() override { shut_down_.store(true, std::memory_order_relaxed); }

 private:
  friend class SoloSet;
  SoloRuntime(const Config& config, kernels::Isa isa);

  // kNotInitialized in a forked child, kAborted after Shutdown.
  Status CheckUsable() const;
  // Computes the outputs of a request that has been found valid.
  Status Execute(WorkState* work);
  // out = postscale * prescale * in, elementwise; in == out is allowed.
  void CopyScaled(const TensorView& in, void* out, ReduceOp op, double prescale,
                  double postscale) const;

  const Config config_;
  const kernels::Isa isa_;
  const pid_t pid_;
  const std::shared_ptr<WorkPool> pool_;
  std::atomic<bool> shut_down_{false};
  std::atomic<int64_t> works_{0};
  std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> rounds_{0};

  std::mutex mutex_;
  std::set<std::string> set_names_;  // guarded by mutex_; of the sets that live
};

}  // namespace ronde
