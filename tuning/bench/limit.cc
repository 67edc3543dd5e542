#include "tuning/bench/limit.h"

#include <span>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/kernels/limit.h"
#include "core/kernels/reduce.h"
#include "tuning/bench/placement.h"

namespace ronde::bench {
namespace {

constexpr int64_t kPage = 4096;

int64_t SlotStride(int64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

// One pass: reads every source, writes every destination.
void ReduceFloats(std::span<void* const> srcs, std::span<void* const> dsts, int64_t count,
                  kernels::Store store) {
  static const kernels::ReduceFn reduce =
      kernels::FindReduce(kernels::DetectIsa(), DType::kFloat32, ReduceOp::kSum);
  kernels::ReduceArgs args{};
  args.srcs = srcs.data();
  args.num_srcs = static_cast<int>(srcs.size());
  args.dsts = dsts.data();
  args.num_dsts = static_cast<int>(dsts.size());
  args.count = static_cast<size_t>(count);
  args.store = store;
  reduce(args);
}

}  // namespace

std::string_view BuffersName(Buffers buffers) {
  switch (buffers) {
    case Buffers::kPrivate:
      return "private";
    case Buffers::kArena:
      return "arena";
  }
  return "?";
}

SpinBarrier::SpinBarrier(const SharedMemory& memory, int ranks)
    : state_(reinterpret_cast<State*>(memory.data())),
      ranks_(static_cast<uint32_t>(ranks)),
      oversubscribed_(static_cast<size_t>(ranks) > UsableCpus().size()) {
  RONDE_CHECK(memory.size_bytes() >= kBytes);
}

bool SpinBarrier::Wait() {
  const uint32_t generation = state_->generation.load(std::memory_order_acquire);
  if (state_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks_) {
    state_->arrived.store(0, std::memory_order_relaxed);
    state_->generation.store(generation + 1, std::memory_order_release);
    return true;
  }
  const int64_t deadline_ns = NowNs() + 60 * kNsPerS;
  for (uint32_t spins = 1; state_->generation.load(std::memory_order_acquire) == generation;
       ++spins) {
    if (oversubscribed_ || spins % 4096 == 0) std::this_thread::yield();
    if (spins % 4096 == 0 && NowNs() > deadline_ns) return false;
  }
  return true;
}

int64_t LimitSharedBytes(Buffers buffers, int64_t bytes, int ranks) {
  if (buffers == Buffers::kPrivate) return kPage;
  return kPage + SlotStride(bytes) * RotationCopies(bytes, kMaxArenaCopies) * ranks;
}

LimitKernel::LimitKernel(Buffers buffers, OpKind kind, int64_t bytes, BufferPair* memory,
                         const SharedMemory& shared, int rank, int ranks)
    : buffers_(buffers),
      kind_(kind),
      bytes_(bytes),
      rank_(rank),
      ranks_(ranks),
      slots_(shared.data() + kPage),
      memory_(memory) {
  RONDE_CHECK(shared.size_bytes() >= LimitSharedBytes(buffers, bytes, ranks));
  if (buffers == Buffers::kArena) {
    slot_copies_ = RotationCopies(bytes, kMaxArenaCopies);
  } else {
    memory->inputs.Resize(bytes);
    memory->outputs.Resize(bytes);
  }
}

void LimitKernel::Run(int64_t i) {
  if (buffers_ == Buffers::kArena) {
    RunArena(i);
    return;
  }
  switch (kind_) {
    case OpKind::kAllreduce:
    case OpKind::kAllgather:
    case OpKind::kAlltoall:
    case OpKind::kBroadcast:
      kernels::StreamCopy(memory_->outputs.at(i), memory_->inputs.at(i),
                          static_cast<size_t>(bytes_));
      break;
    case OpKind::kReducescatter: {
      const int64_t part = bytes_ / ranks_ / static_cast<int64_t>(sizeof(float));
      std::vector<void*> parts;
      for (int r = 0; r < ranks_; ++r) {
        parts.push_back(static_cast<float*>(memory_->inputs.at(i)) + r * part);
      }
      void* out = memory_->outputs.at(i);
      ReduceFloats(parts, {&out, 1}, part, kernels::Store::kStreaming);
      break;
    }
    case OpKind::kBarrier:
      break;
  }
}

void LimitKernel::RunArena(int64_t i) {
  const int64_t count = bytes_ / static_cast<int64_t>(sizeof(float));
  const int64_t begin = count * rank_ / ranks_;
  const int64_t end = count * (rank_ + 1) / ranks_;
  const int64_t stride = SlotStride(bytes_);
  std::vector<void*> slices;
  for (int r = 0; r < ranks_; ++r) {
    std::byte* slot = slots_ + (r * slot_copies_ + i % slot_copies_) * stride;
    slices.push_back(reinterpret_cast<float*>(slot) + begin);
  }
  if (ranks_ == 2) {
    kernels::AddInPlace(static_cast<float*>(slices[0]), static_cast<float*>(slices[1]),
                        static_cast<size_t>(end - begin));
    return;
  }
  ReduceFloats(slices, slices, end - begin, kernels::Store::kCached);
}

}  // namespace ronde::bench
