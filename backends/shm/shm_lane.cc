#include "backends/shm/shm_lane.h"

#include <algorithm>
#include <cstring>

#include "core/base/log.h"
#include "core/kernels/copy.h"

namespace ronde::shm {
namespace {

constexpr int64_t kAlign = 64;
constexpr int64_t kCachedChunk =
    1 << 20;  // measured: below 512 KB the barriers cost more than the caches give
constexpr int64_t kStreamedChunk = 3 << 20;
constexpr int64_t kLongStreamed = 16 << 20;     // shorter ones need several chunks to overlap
constexpr int64_t kStreamedFrom = 64 << 10;     // measured, far cores: 64 KB 31 us, cached 43
constexpr int64_t kStreamOutputFrom = 1 << 20;  // results beyond the caches are written past them
// Per rank; larger than the caches with those of the other ranks, small enough to be touched soon.
constexpr int64_t kStreamedRing = 48 << 20;

int64_t CeilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
int64_t RoundUp(int64_t bytes) {
  return CeilDiv(bytes, kAlign) * kAlign;
}

bool Reduces(OpKind kind) {
  return kind == OpKind::kAllreduce || kind == OpKind::kReducescatter;
}

}  // namespace

ShmLane::ShmLane(const BackendContext& context, int lane)
    : context_(context),
      lane_(lane),
      n_(context.board.num_ranks()),
      me_(context.rank),
      staging_(context.board, lane),
      placement_(staging_, me_, n_),
      others_(static_cast<size_t>(n_)),
      srcs_(static_cast<size_t>(n_)) {}

void ShmLane::Start(const Collective& collective) {
  c_ = collective;
  in_ = Concat(c_.inputs);
  out_ = Concat(c_.outputs);
  element_ = static_cast<int64_t>(DTypeSize(c_.dtype));
  step_ = 0;
  num_steps_ = 0;
  store_ = kernels::Store::kCached;
  out_store_ = kernels::Store::kCached;
  if (c_.schedule == Schedule::kOneShot) return;
  placement_.MaybeProbe(c_.hint);
  Plan();
}

Progress ShmLane::Poll() {
  if (c_.schedule == Schedule::kOneShot) {
    RunOneShot();
    return Progress::kDone;
  }
  if (step_ < num_steps_) {
    if (!Reached(base_ + static_cast<uint64_t>(step_))) return Progress::kIdle;
    RunStep(step_);
    ++step_;
    ++messages_;
    context_.recorder->Record(Hop::kChunk, static_cast<uint32_t>(lane_),
                              base_ + static_cast<uint64_t>(step_));
    const uint64_t published = base_ + static_cast<uint64_t>(step_);
    staging_.progress(me_).store(published, std::memory_order_seq_cst);
    if (step_ < num_steps_) {
      // Nobody waits for a last step: whoever published it is done.
      if (Reached(published)) context_.doorbell->RingOthers();
      return Progress::kBusy;
    }
  }
  base_ += static_cast<uint64_t>(num_steps_);
  ring_start_ += num_chunks_;
  placement_.Tick();
  return Progress::kDone;
}

bool ShmLane::Reached(uint64_t step) const {
  for (int r = 0; r < n_; ++r) {
    if (staging_.progress(r).load(std::memory_order_seq_cst) < step) return false;
  }
  return true;
}

std::vector<int> ShmLane::Missing() const {
  std::vector<int> missing;
  if (c_.schedule == Schedule::kOneShot) return missing;
  for (int r = 0; r < n_; ++r) {
    if (staging_.progress(r).load(std::memory_order_seq_cst) <
        base_ + static_cast<uint64_t>(step_)) {
      missing.push_back(r);
    }
  }
  return missing;
}

// ---- oneshot ----

void ShmLane::RunOneShot() {
  const Board& board = context_.board;
  const auto payload = [&](int r) { return board.payload(lane_, c_.seq, r); };
  switch (c_.kind) {
    case OpKind::kAllreduce:
      for (int r = 0; r < n_; ++r) others_[static_cast<size_t>(r)] = payload(r);
      ReducePiece(0, 0, in_.bytes(), others_, nullptr, store_);
      return;
    case OpKind::kReducescatter: {
      const int64_t begin = part_offset(me_, me_);
      for (int r = 0; r < n_; ++r) others_[static_cast<size_t>(r)] = payload(r) + begin;
      ReducePiece(begin, 0, part_bytes(me_, me_), others_, nullptr, store_);
      return;
    }
    case OpKind::kBroadcast:
      if (me_ == c_.root) {
        in_.ForEach(0, in_.bytes(),
                    [&](std::byte* p, int64_t bytes, int64_t at) { CopyTo(at, p, bytes, store_); });
      } else {
        CopyTo(0, payload(c_.root), out_.bytes(), store_);
      }
      return;
    case OpKind::kAllgather:
      for (int r = 0; r < n_; ++r) {
        CopyTo(gathered_offset(r), payload(r), c_.counts[static_cast<size_t>(r)] * element_,
               store_);
      }
      return;
    case OpKind::kAlltoall:
      for (int r = 0; r < n_; ++r) {
        CopyTo(gathered_offset(r), payload(r) + part_offset(r, me_), part_bytes(r, me_), store_);
      }
      return;
    case OpKind::kBarrier:
      return;
  }
}

// ---- staged ----

void ShmLane::Plan() {
  streamed_ =
      c_.schedule == Schedule::kStreamed ||
      (c_.schedule == Schedule::kStaged && Placement::IsFar(c_.hint) && c_.bytes >= kStreamedFrom);
  store_ = streamed_ ? kernels::Store::kStreaming : kernels::Store::kCached;
  out_store_ = streamed_ || out_.bytes() >= kStreamOutputFrom ? kernels::Store::kStreaming
                                                              : kernels::Store::kCached;
  const bool long_streamed = streamed_ && c_.bytes >= kLongStreamed;
  chunk_bytes_ = c_.chunk_bytes != 0 ? c_.chunk_bytes
                 : long_streamed     ? kStreamedChunk
                                     : kCachedChunk;
  // Two slots of a stage and a result must fit into each rank's memory.
  chunk_bytes_ = std::min(chunk_bytes_, staging_.rank_bytes() / 8);
  chunk_bytes_ = std::max<int64_t>(chunk_bytes_ / (kAlign * n_), 1) * kAlign * n_;
  piece_bytes_ = chunk_bytes_ / n_;
  int64_t longest = 0;
  num_chunks_ = 0;
  switch (c_.kind) {
    case OpKind::kAllreduce:
      num_chunks_ = CeilDiv(in_.bytes(), chunk_bytes_);
      break;
    case OpKind::kBroadcast:
      num_chunks_ = CeilDiv(out_.bytes(), chunk_bytes_);
      break;
    case OpKind::kAllgather:
    case OpKind::kReducescatter:
      for (const int64_t count : c_.counts) longest = std::max(longest, count * element_);
      num_chunks_ = CeilDiv(longest, piece_bytes_);
      break;
    case OpKind::kAlltoall:
      for (int from = 0; from < n_; ++from) {
        for (int to = 0; to < n_; ++to) {
          // What stays on its rank is not staged, but paces nothing either.
          longest = std::max(longest, part_bytes(from, to));
        }
      }
      num_chunks_ = CeilDiv(longest, piece_bytes_);
      break;
    case OpKind::kBarrier:
      break;
  }
  depth_ = staging_.Cut(
      chunk_bytes_, c_.kind == OpKind::kAllreduce ? piece_bytes_ + kAlign : 0,
      streamed_ ? std::max<int64_t>(kStreamedRing / (chunk_bytes_ + piece_bytes_), 2) : 2);
  RONDE_CHECK(depth_ >= 2);
  if (streamed_ && !ring_touched_) {
    // Once, some tens of milliseconds: otherwise every chunk of the first operations meets fresh
    // pages. Each rank its own: the others may be writing theirs already.
    staging_.Touch(me_, depth_);
    ring_touched_ = true;
  }
  const int64_t stages = c_.kind == OpKind::kAllreduce ? 3 : 2;
  num_steps_ = num_chunks_ == 0 ? 0 : num_chunks_ + stages - 1;
}

void ShmLane::RunStep(int64_t step) {
  if (step < num_chunks_) Stage(step);
  int64_t behind = step - 1;
  if (Reduces(c_.kind)) {
    if (behind >= 0 && behind < num_chunks_) Reduce(behind);
    if (c_.kind == OpKind::kReducescatter) return;
    --behind;
  }
  if (behind >= 0 && behind < num_chunks_) CopyOut(behind);
}

ShmLane::Range ShmLane::Chunk(int64_t chunk) const {
  const int64_t total = out_.bytes();
  const int64_t begin = chunk * chunk_bytes_;
  return {begin, std::min(chunk_bytes_, total - begin)};
}

ShmLane::Range ShmLane::Slice(const Range& chunk, int r) const {
  const int64_t width = RoundUp(CeilDiv(chunk.bytes, n_));
  const int64_t begin = std::min(r * width, chunk.bytes);
  return {begin, std::min(width, chunk.bytes - begin)};
}

ShmLane::Range ShmLane::PartPiece(int64_t part, int64_t chunk) const {
  const int64_t begin = std::min(chunk * piece_bytes_, part);
  return {begin, std::min(piece_bytes_, part - begin)};
}

int64_t ShmLane::part_bytes(int from, int to) const {
  const int index = c_.kind == OpKind::kAlltoall ? from * n_ + to : to;
  return c_.counts[static_cast<size_t>(index)] * element_;
}

int64_t ShmLane::part_offset(int from, int to) const {
  int64_t offset = 0;
  for (int r = 0; r < to; ++r) offset += part_bytes(from, r);
  return offset;
}

int64_t ShmLane::gathered_offset(int r) const {
  int64_t offset = 0;
  for (int from = 0; from < r; ++from) {
    offset += c_.kind == OpKind::kAlltoall ? part_bytes(from, me_)
                                           : c_.counts[static_cast<size_t>(from)] * element_;
  }
  return offset;
}

void ShmLane::Stage(int64_t chunk) {
  const int64_t slot = (ring_start_ + chunk) % depth_;
  std::byte* const stage = staging_.stage(me_, slot);
  switch (c_.kind) {
    case OpKind::kAllreduce: {
      const Range whole = Chunk(chunk);
      for (int r = 0; r < n_; ++r) {
        if (r == me_) continue;
        const Range slice = Slice(whole, r);
        CopyIn(stage + slice.begin, whole.begin + slice.begin, slice.bytes, store_);
      }
      return;
    }
    case OpKind::kBroadcast: {
      if (me_ != c_.root) return;
      const Range whole = Chunk(chunk);
      CopyIn(stage, whole.begin, whole.bytes, store_);
      return;
    }
    case OpKind::kAllgather: {
      const Range piece = PartPiece(in_.bytes(), chunk);
      CopyIn(stage, piece.begin, piece.bytes, store_);
      return;
    }
    case OpKind::kReducescatter:
    case OpKind::kAlltoall:
      for (int r = 0; r < n_; ++r) {
        if (r == me_) continue;
        const Range piece = PartPiece(part_bytes(me_, r), chunk);
        CopyIn(stage + r * piece_bytes_, part_offset(me_, r) + piece.begin, piece.bytes, store_);
      }
      return;
    case OpKind::kBarrier:
      return;
  }
}

void ShmLane::Reduce(int64_t chunk) {
  const int64_t slot = (ring_start_ + chunk) % depth_;
  int64_t in_begin, out_begin, bytes, stage_begin;
  std::byte* shared = nullptr;
  if (c_.kind == OpKind::kAllreduce) {
    const Range whole = Chunk(chunk);
    const Range slice = Slice(whole, me_);
    in_begin = out_begin = whole.begin + slice.begin;
    bytes = slice.bytes;
    stage_begin = slice.begin;
    if (n_ > 1) shared = staging_.result(me_, slot);
  } else {
    const Range piece = PartPiece(part_bytes(me_, me_), chunk);
    in_begin = part_offset(me_, me_) + piece.begin;
    out_begin = piece.begin;
    bytes = piece.bytes;
    stage_begin = me_ * piece_bytes_;
  }
  for (int r = 0; r < n_; ++r) {
    others_[static_cast<size_t>(r)] = r == me_ ? nullptr : staging_.stage(r, slot) + stage_begin;
  }
  ReducePiece(in_begin, out_begin, bytes, others_, shared, store_);
}

void ShmLane::CopyOut(int64_t chunk) {
  const int64_t slot = (ring_start_ + chunk) % depth_;
  switch (c_.kind) {
    case OpKind::kAllreduce: {
      const Range whole = Chunk(chunk);
      for (int r = 0; r < n_; ++r) {
        if (r == me_) continue;
        const Range slice = Slice(whole, r);
        CopyTo(whole.begin + slice.begin, staging_.result(r, slot), slice.bytes, out_store_);
      }
      return;
    }
    case OpKind::kBroadcast: {
      const Range whole = Chunk(chunk);
      if (me_ != c_.root) {
        CopyTo(whole.begin, staging_.stage(c_.root, slot), whole.bytes, out_store_);
      } else {
        in_.ForEach(whole.begin, whole.bytes, [&](std::byte* p, int64_t bytes, int64_t at) {
          CopyTo(whole.begin + at, p, bytes, out_store_);
        });
      }
      return;
    }
    case OpKind::kAllgather:
    case OpKind::kAlltoall:
      for (int r = 0; r < n_; ++r) {
        const bool gather = c_.kind == OpKind::kAllgather;
        const int64_t part =
            gather ? c_.counts[static_cast<size_t>(r)] * element_ : part_bytes(r, me_);
        const Range piece = PartPiece(part, chunk);
        const int64_t to = gathered_offset(r) + piece.begin;
        if (r == me_) {
          const int64_t from = (gather ? 0 : part_offset(me_, me_)) + piece.begin;
          in_.ForEach(from, piece.bytes, [&](std::byte* p, int64_t bytes, int64_t at) {
            CopyTo(to + at, p, bytes, out_store_);
          });
        } else {
          CopyTo(to, staging_.stage(r, slot) + (gather ? 0 : me_ * piece_bytes_), piece.bytes,
                 out_store_);
        }
      }
      return;
    case OpKind::kReducescatter:
    case OpKind::kBarrier:
      return;
  }
}

void ShmLane::CopyIn(std::byte* to, int64_t begin, int64_t bytes, kernels::Store store) const {
  in_.ForEach(begin, bytes, [&](std::byte* p, int64_t piece, int64_t at) {
    kernels::Copy(to + at, p, static_cast<size_t>(piece), store);
  });
}

void ShmLane::CopyTo(int64_t out_begin, const std::byte* from, int64_t bytes,
                     kernels::Store store) const {
  out_.ForEach(out_begin, bytes, [&](std::byte* p, int64_t piece, int64_t at) {
    if (p != from + at) kernels::Copy(p, from + at, static_cast<size_t>(piece), store);
  });
}

void ShmLane::ReducePiece(int64_t in_begin, int64_t out_begin, int64_t bytes,
                          const std::vector<const std::byte*>& others, std::byte* shared_result,
                          kernels::Store store) {
  const kernels::ReduceFn reduce = kernels::FindReduce(context_.isa, c_.dtype, c_.op);
  in_.ForEach(in_begin, bytes, [&](std::byte* own, int64_t piece, int64_t at) {
    for (size_t r = 0; r < others.size(); ++r) {
      srcs_[r] = others[r] == nullptr ? own : others[r] + at;
    }
    // Inputs and outputs of a group have the same boundaries, except a reducescatter's, which has
    // one tensor.
    out_.ForEach(out_begin + at, piece, [&](std::byte* result, int64_t, int64_t) {
      void* dsts[2] = {result, shared_result == nullptr ? nullptr : shared_result + at};
      kernels::ReduceArgs args{};
      args.srcs = srcs_.data();
      args.num_srcs = n_;
      args.dsts = dsts;
      args.num_dsts = shared_result == nullptr ? 1 : 2;
      args.count = static_cast<size_t>(piece / element_);
      args.prescale = c_.prescale;
      args.postscale = c_.postscale;
      args.divisor = n_;
      args.store = store;
      reduce(args);
    });
  });
}

}  // namespace ronde::shm
