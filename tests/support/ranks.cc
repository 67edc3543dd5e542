#include "tests/support/ranks.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "backends/shm/shm_backend.h"
#include "core/runtime/group_runtime.h"

namespace ronde::testing {

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "ronde-test-XXXXXX").string();
  path_ = mkdtemp(pattern.data());
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Config RankConfig(int rank, int size, const TempDir& dir) {
  Config config;
  config.rank = config.local_rank = rank;
  config.size = config.local_size = size;
  config.rendezvous = dir.path() + "/sock";
  config.job = dir.path();
  // Generous: only a hang gets there.
  config.timeout_ms = 60'000;
  config.start_timeout_ms = 60'000;
  return config;
}

std::shared_ptr<BackendRegistry> Backends() {
  auto backends = std::make_shared<BackendRegistry>();
  backends->Add(shm::MakeShmBackend());
  return backends;
}

void RunRankThreads(int size, const RankFn& fn, const std::function<void(Config&)>& adjust) {
  const TempDir dir;
  const auto mappings = std::make_shared<MappingCache>();
  std::barrier<> through(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Config config = RankConfig(rank, size, dir);
      if (adjust) adjust(config);
      Result<std::unique_ptr<Runtime>> runtime =
          CreateGroupRuntime(config, Backends(), {}, mappings);
      EXPECT_TRUE(runtime.ok()) << runtime.status().ToString();
      if (runtime.ok()) {
        fn(**runtime);
        EXPECT_EQ((*runtime)->stats().capped_sleeps, 0) << "a sleeper was not rung";
      }
      through.arrive_and_wait();
      if (runtime.ok()) (*runtime)->Shutdown();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<RankExit> RunRankProcesses(int size, const RankFn& fn,
                                       const std::function<void(const std::vector<pid_t>&)>& meddle,
                                       const std::function<void(Config&)>& adjust) {
  const TempDir dir;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      Config config = RankConfig(rank, size, dir);
      if (adjust) adjust(config);
      Result<std::unique_ptr<Runtime>> runtime = CreateGroupRuntime(config, Backends());
      EXPECT_TRUE(runtime.ok()) << runtime.status().ToString();
      if (runtime.ok()) fn(**runtime);
      if (runtime.ok()) (*runtime)->Shutdown();
      fflush(nullptr);
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    pids.push_back(pid);
  }
  if (meddle) meddle(pids);
  std::vector<RankExit> exits;
  for (const pid_t pid : pids) {
    int status = 0;
    waitpid(pid, &status, 0);
    exits.push_back(
        {WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0});
  }
  return exits;
}

}  // namespace ronde::testing
