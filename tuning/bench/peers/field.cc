#include "tuning/bench/peers/field.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "tuning/bench/limit.h"
#include "tuning/bench/system.h"

namespace ronde::bench {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRonde = "ronde-peer-ronde";
constexpr const char* kOpenMpi = "ronde-peer-openmpi";
constexpr const char* kGloo = "ronde-peer-gloo";
constexpr const char* kLimit = "ronde-peer-limit";

std::string DescribeGroup(const std::unique_ptr<PeerGroup>& group, const char* name,
                          const char* needs) {
  if (group != nullptr) return fmt::format("#   {}\n", group->version());
  return fmt::format("#   {}: not built ({})\n", name, needs);
}

}  // namespace

Result<ScratchDirectory> ScratchDirectory::Make() {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  std::string name = ((error ? fs::path("/tmp") : parent) / "ronde-peers-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) return Status::FromErrno(name);
  return ScratchDirectory(name);
}

ScratchDirectory::ScratchDirectory(ScratchDirectory&& other) noexcept
    : path_(std::exchange(other.path_, "")) {}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

Field::Field(int ranks, const ScratchDirectory& scratch, const std::atomic<bool>* interrupted)
    : ranks_(ranks),
      scratch_(scratch.path()),
      programs_(fs::read_symlink("/proc/self/exe").parent_path().string()),
      interrupted_(interrupted) {}

Status Field::Start(int64_t max_bytes) {
  if (Built(kRonde)) RONDE_RETURN_IF_ERROR(StartGroup("ronde", RondeRanks(), &ronde_));
  if (Built(kOpenMpi)) RONDE_RETURN_IF_ERROR(StartGroup("openmpi", OpenMpiRanks(), &openmpi_));
  if (Built(kGloo)) {
    const std::string store = Socket("gloo-store");
    fs::create_directory(store);
    RONDE_RETURN_IF_ERROR(StartGroup("gloo", PerRank(kGloo, Socket("gloo"), store), &gloo_));
  }
  // Small sizes are kept in several copies, which together stay below twice the cache. Pages that
  // are not touched cost nothing.
  const int64_t shared_bytes =
      LimitSharedBytes(Buffers::kArena, max_bytes, ranks_) + 2 * LastLevelCacheBytes() * ranks_;
  Result<SharedMemory> memory = SharedMemory::Create(shared_bytes);
  if (!memory.ok()) return memory.status();
  limit_memory_.emplace(std::move(memory).value());
  return StartGroup("limit", PerRank(kLimit, Socket("limit"), limit_memory_->path()), &limit_);
}

std::vector<SweepCandidate> Field::Candidates() const {
  std::vector<SweepCandidate> all;
  if (ronde_) all.push_back({Column::kRondePrivate, ronde_.get(), Buffers::kPrivate});
  if (ronde_) all.push_back({Column::kRondeArena, ronde_.get(), Buffers::kArena});
  if (openmpi_) all.push_back({Column::kOpenMpi, openmpi_.get(), Buffers::kPrivate});
  if (gloo_) all.push_back({Column::kGloo, gloo_.get(), Buffers::kPrivate});
  all.push_back({Column::kLimitPrivate, limit_.get(), Buffers::kPrivate});
  all.push_back({Column::kLimitArena, limit_.get(), Buffers::kArena});
  return all;
}

std::string Field::Describe() const {
  return DescribeGroup(ronde_, "Ronde", "needs the Ronde library") +
         DescribeGroup(openmpi_, "Open MPI", "needs libopenmpi-dev") +
         DescribeGroup(gloo_, "Gloo", "needs libgloo-dev");
}

int64_t Field::Footprint(int64_t bytes) const {
  const int64_t private_groups = (ronde_ ? 1 : 0) + (openmpi_ ? 1 : 0) + (gloo_ ? 1 : 0) + 1;
  const int64_t arena_groups = (ronde_ ? 1 : 0) + 1;
  const int64_t private_bytes = 2 * std::max(bytes, LastLevelCacheBytes());
  const int64_t arena_bytes = bytes * RotationCopies(bytes, kMaxArenaCopies);
  return ranks_ * (private_groups * private_bytes + arena_groups * arena_bytes);
}

bool Field::Built(const std::string& program) const {
  return fs::exists(fs::path(programs_) / program);
}

Status Field::StartGroup(const std::string& name, const std::vector<PeerProcess>& processes,
                         std::unique_ptr<PeerGroup>* group) {
  Result<std::unique_ptr<PeerGroup>> started =
      PeerGroup::Start(name, processes, ranks_, Socket(name), interrupted_);
  if (!started.ok()) return started.status();
  *group = std::move(started).value();
  return Status::Ok();
}

std::vector<PeerProcess> Field::PerRank(const std::string& program, const std::string& socket,
                                        const std::string& argument) const {
  std::vector<PeerProcess> processes;
  for (int rank = 0; rank < ranks_; ++rank) {
    processes.push_back({{programs_ + "/" + program, socket, argument, fmt::format("{}", rank),
                          fmt::format("{}", ranks_)},
                         {}});
  }
  return processes;
}

std::vector<PeerProcess> Field::RondeRanks() const {
  std::vector<PeerProcess> processes;
  for (int rank = 0; rank < ranks_; ++rank) {
    // What `ronde run` gives its ranks; there is no launcher between, as there is none for Gloo.
    processes.push_back(
        {{programs_ + "/" + kRonde, Socket("ronde")},
         {fmt::format("RONDE_RANK={}", rank), fmt::format("RONDE_SIZE={}", ranks_),
          fmt::format("RONDE_LOCAL_RANK={}", rank), fmt::format("RONDE_LOCAL_SIZE={}", ranks_),
          fmt::format("RONDE_RENDEZVOUS={}/rendezvous", scratch_),
          fmt::format("RONDE_JOB=peers-{}", getpid())}});
  }
  return processes;
}

std::vector<PeerProcess> Field::OpenMpiRanks() const {
  // Not bound, as the others are not; more ranks than cores are allowed (then it yields by itself).
  return {{{"mpirun", "--oversubscribe", "--bind-to", "none", "-n", fmt::format("{}", ranks_),
            programs_ + "/" + kOpenMpi, Socket("openmpi")},
           {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}}};
}

}  // namespace ronde::bench
