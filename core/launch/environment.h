// The environment of one rank: Ronde's variables, torchrun's, and thread counts.
#pragma once

#include <string>
#include <vector>

namespace ronde::launch {

// "NAME=value" strings, as in environ.
using Environment = std::vector<std::string>;

// What the ranks of one job are told.
struct JobIdentity {
  int size = 1;
  std::string rendezvous;  // path of the socket that rank 0 binds
  std::string job;         // 32 hexadecimal digits, random
  int master_port = 0;     // free on 127.0.0.1 when the job started
};

// The calling process's environment.
Environment CurrentEnvironment();

// Whether the user has set none, some or all of the thread variables (OMP_NUM_THREADS,
// MKL_NUM_THREADS, OPENBLAS_NUM_THREADS): true when at least one is left to us.
bool LeavesThreadsToUs(const Environment& base);

// `base` with this rank's variables replaced or added. Thread variables become `threads`, where the
// user has not set them or where `override_threads`.
Environment RankEnvironment(const Environment& base, const JobIdentity& identity, int rank,
                            int threads, bool override_threads);

}  // namespace ronde::launch
