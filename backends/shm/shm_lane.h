// ShmLane: collectives between the ranks of a host over shared memory.
//
// oneshot: everybody's input is in the cells; each rank reads what it needs. staged: a pipeline
// over chunks, in lock step. Step i of a rank stages chunk i (writes what others need of its
// input), reduces its slice of chunk i-1 straight from its own buffer and the others' stages into
// its own result and a shared one, and copies the others' slices of chunk i-2 out. One counter per
// rank is all the synchronisation: step i begins when every rank has published step i-1. Kinds that
// reduce nothing skip a stage.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/shm/concat.h"
#include "backends/shm/placement.h"
#include "backends/shm/staging.h"
#include "core/exec/backend.h"

namespace ronde::shm {

// Owned by the engine's lane; every method needs the token.
class ShmLane : public BackendLane {
 public:
  ShmLane(const BackendContext& context, int lane);

  void Start(const Collective& collective) override;
  Progress Poll() override;
  void Cancel() override {}
  uint64_t Hint() override { return placement_.Hint(); }
  std::vector<int> Missing() const override;
  int64_t messages() const override { return messages_; }

 private:
  // A half-open range of bytes.
  struct Range {
    int64_t begin = 0;
    int64_t bytes = 0;
  };

  void RunOneShot();
  void Plan();
  void RunStep(int64_t step);
  void Stage(int64_t chunk);
  void Reduce(int64_t chunk);
  void CopyOut(int64_t chunk);
  bool Reached(uint64_t step) const;

  // What a chunk covers, by kind. Offsets are into the whole (allreduce, broadcast) or into one
  // part (the others).
  Range Chunk(int64_t chunk) const;              // of the concatenated tensors
  Range Slice(const Range& chunk, int r) const;  // rank r's share of a chunk, relative to the chunk
  Range PartPiece(int64_t part_bytes, int64_t chunk) const;
  int64_t part_offset(int from, int to) const;  // in `from`'s input, alltoall and reducescatter
  int64_t part_bytes(int from, int to) const;
  int64_t gathered_offset(int r) const;  // in the output, allgather and alltoall

  // One reduction of [begin, begin + bytes) of `in`, the others' shares being at others[k] (null at
  // this rank's index).
  void ReducePiece(int64_t in_begin, int64_t out_begin, int64_t bytes,
                   const std::vector<const std::byte*>& others, std::byte* shared_result,
                   kernels::Store store);
  void CopyIn(std::byte* to, int64_t begin, int64_t bytes, kernels::Store store) const;
  void CopyTo(int64_t out_begin, const std::byte* from, int64_t bytes, kernels::Store store) const;

  const BackendContext context_;
  const int lane_;
  const int n_;
  const int me_;
  Staging staging_;
  Placement placement_;

  Collective c_;
  Concat in_;
  Concat out_;
  int64_t element_ = 1;  // bytes
  bool streamed_ = false;
  bool ring_touched_ = false;
  kernels::Store store_ = kernels::Store::kCached;
  kernels::Store out_store_ = kernels::Store::kCached;
  int64_t chunk_bytes_ = 0;
  int64_t piece_bytes_ = 0;  // of one part, where parts are cut
  int64_t num_chunks_ = 0;
  int64_t depth_ = 2;
  int64_t num_steps_ = 0;
  int64_t step_ = 0;
  uint64_t base_ = 0;       // progress at the operation's start, the same on all ranks
  int64_t ring_start_ = 0;  // slot of chunk 0; moves on, so that a large ring is used whole
  int64_t messages_ = 0;
  std::vector<const std::byte*> others_;
  std::vector<const void*> srcs_;
};

}  // namespace ronde::shm
