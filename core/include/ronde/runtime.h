// Runtime: one rank's membership in a job. What a C++ user, and every binding, talks to.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ronde/config.h"
#include "ronde/request.h"
#include "ronde/set.h"
#include "ronde/status.h"
#include "ronde/work.h"

#pragma GCC visibility push(default)
namespace ronde {

// Totals since the Runtime was made.
struct RuntimeStats {
  int64_t works = 0;          // completed, well or badly
  int64_t bytes = 0;          // of the tensors in them, on this rank
  int64_t messages = 0;       // cells posted and chunks published
  int64_t rounds = 0;         // of declared sets
  int64_t capped_sleeps = 0;  // sleeps that ended by their cap with work to do: 0, or a bug
  int64_t rings = 0;          // sleepers woken
};

// Owned by the caller. Any thread may call any method. Two Runtimes in one process work (they are
// two ranks, or members of two jobs). In a forked child every call returns kNotInitialized.
class Runtime {
 public:
  virtual ~Runtime() = default;

  virtual const Config& config() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int local_rank() const = 0;
  virtual int local_size() const = 0;
  virtual int cross_rank() const = 0;
  virtual int cross_size() const = 0;

  // Starts an operation; never blocks. `callback`, if given, runs exactly once, on the thread that
  // completes the work, with no lock of Ronde held; it may submit and wait.
  //
  // Returned errors are those that leave nothing in flight anywhere: a name in flight twice or too
  // long, an ended Runtime. All other bad arguments complete the work, on every rank, with
  // InvalidArgument or Mismatch.
  virtual Result<Work> Submit(const Request& request,
                              std::function<void(const Status&)> callback = {}) = 0;

  // Waits for a work, moving the engine forward meanwhile. Returns its status; InvalidArgument for
  // an empty Work.
  virtual Status Wait(const Work& work, const WaitOptions& options = {}) = 0;

  // One bounded step of the engine, then work.done(). True for an empty Work: there is nothing to
  // wait for.
  virtual bool Poll(const Work& work) = 0;

  // Submit and wait; the fastest way for small tensors. `work`, if given, receives the work:
  // finished, or still in flight when the wait was interrupted or timed out. It stays invalid when
  // the operation is done and the caller has all results.
  virtual Status Run(const Request& request, const WaitOptions& options = {},
                     Work* work = nullptr) = 0;

  // Collective: every rank declares the same set. Blocks until all did. Mismatch names ranks and
  // values; OutOfMemory on one rank fails it on all; either way the job goes on.
  virtual Result<std::unique_ptr<Set>> DeclareSet(const SetSpec& spec,
                                                  const WaitOptions& options = {}) = 0;

  // The first group error, once there is one.
  virtual Status health() const = 0;
  virtual RuntimeStats stats() const = 0;

  // Leaves the job: pending works complete with kAborted here; peers that still wait for this rank
  // are told. Idempotent. Blocks for the progress thread only. The destructor calls it.
  virtual void Shutdown() = 0;
};

// Joins the job that `config` describes, with the backends linked into this library (bindings/c).
// Blocks until all ranks are there (kTimeout names the missing ones) or fails: InvalidArgument,
// Mismatch (other version, job or rules), Internal.
// `options.keep_waiting` interrupts it as it does Runtime::Wait.
Result<std::unique_ptr<Runtime>> Open(const Config& config, const WaitOptions& options = {});

// What is linked in, and what could not be loaded and why; for `ronde doctor`.
struct BackendReport {
  std::string name;
  bool available = false;
  std::string detail;  // capabilities, or what is missing and what to install
};
std::vector<BackendReport> DescribeBackends();

}  // namespace ronde
#pragma GCC visibility pop
