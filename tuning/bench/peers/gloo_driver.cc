// Gloo as a candidate of `bench peers`: gloo::allreduce, default algorithm, TCP over loopback.
// usage: ronde-peer-gloo SOCKET STORE_DIRECTORY RANK SIZE

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>

#include <fmt/format.h>
#include <gloo/allreduce.h>
#include <gloo/config.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "tuning/bench/buffers.h"
#include "tuning/bench/peers/driver.h"

namespace ronde::bench {
namespace {

// Lives in main; main thread only (Gloo has an I/O thread of its own, which sleeps when idle).
class GlooCandidate : public Candidate {
 public:
  explicit GlooCandidate(std::shared_ptr<gloo::Context> context) : context_(std::move(context)) {}

  Status Prepare(int64_t bytes) override {
    memory_.inputs.Resize(bytes);
    memory_.outputs.Resize(bytes);
    count_ = static_cast<size_t>(bytes) / sizeof(float);
    return Status::Ok();
  }

  Status Run(Buffers buffers, int64_t i) override {
    if (buffers != Buffers::kPrivate) return Status::Unsupported("Gloo has no arenas");
    gloo::AllreduceOptions options(context_);
    options.setInput(static_cast<float*>(memory_.inputs.at(i)), count_);
    options.setOutput(static_cast<float*>(memory_.outputs.at(i)), count_);
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
    return Status::Ok();
  }

 private:
  std::shared_ptr<gloo::Context> context_;
  BufferPair memory_;
  size_t count_ = 0;
};

int Main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: %s SOCKET STORE_DIRECTORY RANK SIZE\n", argv[0]);
    return 2;
  }
  const int rank = std::atoi(argv[3]);
  const int size = std::atoi(argv[4]);
  gloo::transport::tcp::attr attributes;
  attributes.iface = "lo";
  std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::FileStore store(argv[2]);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->connectFullMesh(store, device);
  GlooCandidate candidate(context);
  const std::string version =
      fmt::format("Gloo {}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
  return ServeCandidate(argv[1], rank, size, version, &candidate);
}

}  // namespace
}  // namespace ronde::bench

int main(int argc, char** argv) {
  try {
    return ronde::bench::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ronde-peer-gloo: %s\n", error.what());
    return 1;
  }
}
