// Ronde as a candidate of `bench peers`: blocking allreduce on private buffers, and a declared
// set's rounds in its arena. usage: ronde-peer-ronde SOCKET, with the environment that `ronde run`
// gives a rank

#include <cstdio>
#include <memory>

#include "ronde/runtime.h"
#include "tuning/bench/operation.h"
#include "tuning/bench/peers/driver.h"

namespace ronde::bench {
namespace {

// Lives in main; main thread only; ends before the Runtime.
class RondeCandidate : public Candidate {
 public:
  explicit RondeCandidate(Runtime* runtime) : runtime_(runtime) {}

  Status Prepare(int64_t bytes) override {
    private_.reset();
    arena_.reset();
    const OperationSpec spec = {
        OpKind::kAllreduce, DType::kFloat32, ReduceOp::kSum,
        SizeOperation(OpKind::kAllreduce, bytes, sizeof(float), runtime_->size())};
    private_ = std::make_unique<PrivateOperation>(runtime_, spec, &memory_);
    Result<std::unique_ptr<ArenaOperation>> arena = ArenaOperation::Create(runtime_, spec);
    if (!arena.ok()) return arena.status();
    arena_ = std::move(arena).value();
    return Status::Ok();
  }

  Status Run(Buffers buffers, int64_t i) override {
    switch (buffers) {
      case Buffers::kPrivate:
        return private_->Run(i);
      case Buffers::kArena:
        return arena_->Run(i);
    }
    return Status::Internal("unknown buffers");
  }

 private:
  Runtime* const runtime_;
  BufferPair memory_;
  std::unique_ptr<PrivateOperation> private_;
  std::unique_ptr<ArenaOperation> arena_;
};

int Main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s SOCKET\n", argv[0]);
    return 2;
  }
  const Result<Config> config = Config::FromEnvironment();
  Result<std::unique_ptr<Runtime>> runtime =
      config.ok() ? Open(*config) : Result<std::unique_ptr<Runtime>>(config.status());
  if (!runtime.ok()) {
    std::fprintf(stderr, "ronde-peer-ronde: %s\n", runtime.status().ToString().c_str());
    return 1;
  }
  RondeCandidate candidate(runtime->get());
  return ServeCandidate(argv[1], (*runtime)->rank(), (*runtime)->size(), "Ronde " RONDE_VERSION,
                        &candidate);
}

}  // namespace
}  // namespace ronde::bench

int main(int argc, char** argv) {
  return ronde::bench::Main(argc, argv);
}
