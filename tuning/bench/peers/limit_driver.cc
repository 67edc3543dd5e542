// The limit as a candidate of `bench peers`: an allreduce's reads and writes and nothing else.
// usage: ronde-peer-limit SOCKET SHARED_MEMORY_PATH RANK SIZE

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "tuning/bench/limit.h"
#include "tuning/bench/peers/driver.h"

namespace ronde::bench {
namespace {

// Lives in main; main thread only.
class LimitCandidate : public Candidate {
 public:
  LimitCandidate(SharedMemory shared, int rank, int size)
      : shared_(std::move(shared)), barrier_(shared_, size), rank_(rank), size_(size) {}

  Status Prepare(int64_t bytes) override {
    private_.reset();
    private_ = std::make_unique<LimitKernel>(Buffers::kPrivate, OpKind::kAllreduce, bytes, &memory_,
                                             shared_, rank_, size_);
    arena_ = std::make_unique<LimitKernel>(Buffers::kArena, OpKind::kAllreduce, bytes, &memory_,
                                           shared_, rank_, size_);
    return Status::Ok();
  }

  Status BeginSample() override {
    return barrier_.Wait() ? Status::Ok() : Status::Timeout("another rank has not come");
  }

  Status Run(Buffers buffers, int64_t i) override {
    (buffers == Buffers::kPrivate ? private_ : arena_)->Run(i);
    return Status::Ok();
  }

 private:
  const SharedMemory shared_;
  SpinBarrier barrier_;
  const int rank_;
  const int size_;
  BufferPair memory_;
  std::unique_ptr<LimitKernel> private_;
  std::unique_ptr<LimitKernel> arena_;
};

int Main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: %s SOCKET SHARED_MEMORY_PATH RANK SIZE\n", argv[0]);
    return 2;
  }
  const int rank = std::atoi(argv[3]);
  const int size = std::atoi(argv[4]);
  Result<SharedMemory> shared = SharedMemory::Open(argv[2]);
  if (!shared.ok()) {
    std::fprintf(stderr, "rank %d: %s\n", rank, shared.status().ToString().c_str());
    return 1;
  }
  LimitCandidate candidate(std::move(shared).value(), rank, size);
  return ServeCandidate(argv[1], rank, size, "limit", &candidate);
}

}  // namespace
}  // namespace ronde::bench

int main(int argc, char** argv) {
  return ronde::bench::Main(argc, argv);
}
