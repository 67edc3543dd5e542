// Field: the candidates that were built, started.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ronde/status.h"
#include "tuning/bench/buffers.h"
#include "tuning/bench/peers/peer_group.h"
#include "tuning/bench/peers/sweep.h"

namespace ronde::bench {

// A private directory under the system's one for temporary files; removed with what is in it.
// Owned by main.
class ScratchDirectory {
 public:
  static Result<ScratchDirectory> Make();
  ScratchDirectory(ScratchDirectory&& other) noexcept;
  ScratchDirectory& operator=(ScratchDirectory&&) = delete;
  ~ScratchDirectory();

  const std::string& path() const { return path_; }

 private:
  explicit ScratchDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Owned by main, used by its thread; the groups end with it.
class Field {
 public:
  // `scratch` and `interrupted` must outlive it. Programs of candidates are looked for beside this
  // program: one that is not there was not built.
  Field(int ranks, const ScratchDirectory& scratch, const std::atomic<bool>* interrupted);

  // Starts every candidate that was built. Blocks. `max_bytes`: the largest operation to come.
  Status Start(int64_t max_bytes);

  // What can be measured, in the order of the columns.
  std::vector<SweepCandidate> Candidates() const;
  // One line per candidate: its version, or that it was not built and what it needs.
  std::string Describe() const;
  // Memory that operations of `bytes` need on all ranks together, about.
  int64_t Footprint(int64_t bytes) const;

 private:
  bool Built(const std::string& program) const;
  Status StartGroup(const std::string& name, const std::vector<PeerProcess>& processes,
                    std::unique_ptr<PeerGroup>* group);
  // One process per rank: PROGRAM SOCKET `argument` RANK SIZE.
  std::vector<PeerProcess> PerRank(const std::string& program, const std::string& socket,
                                   const std::string& argument) const;
  std::vector<PeerProcess> RondeRanks() const;
  std::vector<PeerProcess> OpenMpiRanks() const;
  std::string Socket(const std::string& name) const { return scratch_ + "/" + name; }

  const int ranks_;
  const std::string scratch_;
  const std::string programs_;  // the directory
  const std::atomic<bool>* const interrupted_;
  std::optional<SharedMemory> limit_memory_;
  std::unique_ptr<PeerGroup> ronde_;
  std::unique_ptr<PeerGroup> openmpi_;
  std::unique_ptr<PeerGroup> gloo_;
  std::unique_ptr<PeerGroup> limit_;
};

}  // namespace ronde::bench
