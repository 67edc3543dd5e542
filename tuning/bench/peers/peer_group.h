// PeerGroup: the running rank processes of one candidate, seen from the orchestrator.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ronde/status.h"
#include "tuning/bench/peers/protocol.h"

namespace ronde::bench {

// How to start one process.
struct PeerProcess {
  std::vector<std::string> command;      // an absolute path and its arguments, or a name in PATH
  std::vector<std::string> environment;  // "NAME=value" beside the orchestrator's own
};

// Owned by the orchestrator; its main thread only. The processes die with the orchestrator, and at
// the latest in the destructor.
class PeerGroup {
 public:
  // Starts `processes`, which bring up `ranks` ranks that connect to `socket_path` (made here,
  // removed as soon as all are there). Blocks until they did: a process that ends early, 60 s
  // without success, or `*interrupted` is an error.
  static Result<std::unique_ptr<PeerGroup>> Start(const std::string& name,
                                                  const std::vector<PeerProcess>& processes,
                                                  int ranks, const std::string& socket_path,
                                                  const std::atomic<bool>* interrupted);
  ~PeerGroup();
  PeerGroup(const PeerGroup&) = delete;

  const std::string& name() const { return name_; }
  // Of the library, as its driver says.
  const std::string& version() const { return version_; }

  // Allocates on every rank. Blocks; errors of any rank, and of a rank that went away.
  Status Prepare(int64_t bytes);
  // Runs one block; its sample times in ns per call (see GroupTimes and BlockPlan).
  Result<std::vector<double>> Run(Buffers buffers, const BlockPlan& plan);

 private:
  PeerGroup(std::string name, const std::atomic<bool>* interrupted)
      : name_(std::move(name)), interrupted_(interrupted) {}

  Status Connect(const std::vector<PeerProcess>& processes, int ranks, int listener);
  Status AcceptRank(int listener, int64_t deadline_ns);
  Status SendAll(const Command& command);
  // stamps of each rank.
  Result<std::vector<std::vector<int64_t>>> ReceiveAll();
  Status ReadAll(size_t rank, void* data, size_t bytes);
  // OK when `fd` became readable before the deadline.
  Status AwaitReadable(int fd, int64_t deadline_ns);
  // An error when a process of the group has ended.
  Status CheckProcesses();

  const std::string name_;
  const std::atomic<bool>* const interrupted_;
  std::string version_;
  std::vector<pid_t> pids_;
  std::vector<int> connections_;  // by rank
};

}  // namespace ronde::bench
