// Open MPI as a candidate of `bench peers`: MPI_Allreduce with the library's default algorithm.
// usage: mpirun -n N ronde-peer-openmpi SOCKET

#include <mpi.h>

#include <cstdio>
#include <string>

#include "tuning/bench/buffers.h"
#include "tuning/bench/peers/driver.h"

namespace ronde::bench {
namespace {

// Lives in main between MPI_Init and MPI_Finalize; main thread only.
class MpiCandidate : public Candidate {
 public:
  Status Prepare(int64_t bytes) override {
    memory_.inputs.Resize(bytes);
    memory_.outputs.Resize(bytes);
    count_ = static_cast<int>(bytes / static_cast<int64_t>(sizeof(float)));
    return Status::Ok();
  }

  // Errors of MPI end the process (MPI_ERRORS_ARE_FATAL is the default).
  Status Run(Buffers buffers, int64_t i) override {
    if (buffers != Buffers::kPrivate) return Status::Unsupported("Open MPI has no arenas");
    MPI_Allreduce(memory_.inputs.at(i), memory_.outputs.at(i), count_, MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
    return Status::Ok();
  }

 private:
  BufferPair memory_;
  int count_ = 0;
};

int Main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 2) {
    std::fprintf(stderr, "usage: mpirun -n N %s SOCKET\n", argv[0]);
    return 2;
  }
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(version, &length);
  // "Open MPI v4.1.4, package: ..., ident: ...": the first part is what people call it.
  const std::string text(version, static_cast<size_t>(length));
  MpiCandidate candidate;
  const int exit_status =
      ServeCandidate(argv[1], rank, size, text.substr(0, text.find(',')), &candidate);
  MPI_Finalize();
  return exit_status;
}

}  // namespace
}  // namespace ronde::bench

int main(int argc, char** argv) {
  return ronde::bench::Main(argc, argv);
}
