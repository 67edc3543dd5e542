// One trial of `bench faults`: a job, a rank of it killed, and how the others came to know.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ronde/status.h"

namespace ronde::bench {

// What burdens the rank that is killed.
enum class Burden : uint8_t {
  kNone,
  kResident,     // several GiB of memory of its own, which the kernel takes its time to free
  kForkedChild,  // a live child process, which holds copies of all descriptors
};

// What the ranks do when it happens.
enum class Load : uint8_t {
  kSmall,    // blocking allreduces of 8 bytes
  kPrivate,  // blocking allreduces of 16 MiB on private buffers
  kArena,    // rounds of a declared set of 16 MiB
  kWaiting,  // the victim computes, the others wait for it in an allreduce
};
inline constexpr int kNumLoads = 4;
std::string_view LoadName(Load load);

struct TrialOptions {
  int ranks = 2;
  int victim = 0;
  Burden burden = Burden::kNone;
  Load load = Load::kSmall;
  int64_t resident_bytes = int64_t{4} << 30;  // for kResident
  int64_t delay_us = 0;                       // from when all ranks are at work until the kill
};

// What one survivor saw.
struct Witness {
  int rank = 0;
  int64_t after_ns = 0;  // from just before the kill until its pending work returned
  std::string verdict;   // empty: PeerLost, naming the victim, also for a later work
};

// Forks the ranks, kills the victim, collects what the survivors say. Nothing is left running.
// Blocks; an error when the job could not start. For a process with one thread.
Result<std::vector<Witness>> RunTrial(const TrialOptions& options);

}  // namespace ronde::bench
