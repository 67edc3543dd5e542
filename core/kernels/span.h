// Walking over the elements: groups of vectors from the sources to the destinations, through the
// caches or around them (see variant.h for how this is compiled).
#pragma once

#include "core/kernels/tree.h"
#include "core/kernels/vector.h"

namespace ronde::kernels {
namespace {

struct Destinations {
  void* const* p;
  int n;
};

// Reduces as many whole groups of U vectors as `bytes` hold, from byte `src_at` of the sources to
// byte `dst_at` of the destinations; returns their bytes. A group is read from every source before
// any of it is written: destinations may be sources.
template <bool kStream, class Op, int L, int U, class Format, class Srcs>
[[gnu::always_inline]] inline size_t Groups(const Format& format, const Srcs& srcs,
                                            Destinations dsts, size_t src_at, size_t dst_at,
                                            size_t bytes) {
  using Stored = Vec<typename Format::Stored, L>;
  constexpr size_t kGroup = U * sizeof(Stored);
  size_t at = 0;
  for (; at + kGroup <= bytes; at += kGroup) {
    Vec<typename Format::Acc, L> x[U];
    srcs.template Reduce<Op, L, U>(format, src_at + at, x);
    Stored out[U];
    for (int u = 0; u < U; ++u) out[u] = format.template Narrow<L>(x[u]);
    for (int d = 0; d < dsts.n; ++d) {
      char* p = static_cast<char*>(dsts.p[d]) + dst_at + at;
      for (int u = 0; u < U; ++u) StoreVec<kStream>(p + u * sizeof(Stored), out[u]);
    }
  }
  return at;
}

// Reduces `bytes` with ordinary stores, by vectors of four widths, so that few bytes cost few
// steps.
template <class Op, class Format, class Srcs>
[[gnu::noinline]] void Span(const Format& format, const Srcs& srcs, Destinations dsts,
                            size_t src_at, size_t dst_at, size_t bytes) {
  constexpr int kWide = Format::kLanes;
  constexpr int kNarrow = 16 / sizeof(typename Format::Acc);
  size_t at = 0;
  if constexpr (kWide > 1) {
    if constexpr (kFast<Op, Format>) {
      at += Groups<false, Op, kWide, 4>(format, srcs, dsts, src_at, dst_at, bytes);
    }
    at += Groups<false, Op, kWide, 1>(format, srcs, dsts, src_at + at, dst_at + at, bytes - at);
  }
  if constexpr (kWide > kNarrow && kNarrow > 1) {
    at += Groups<false, Op, kNarrow, 1>(format, srcs, dsts, src_at + at, dst_at + at, bytes - at);
  }
  Groups<false, Op, 1, 1>(format, srcs, dsts, src_at + at, dst_at + at, bytes - at);
}

// Whether all destinations reach a line of the cache after the same whole number of elements.
inline bool AlignedAlike(Destinations dsts, size_t element_bytes) {
  const size_t head = BytesToLine(dsts.p[0]);
  for (int d = 1; d < dsts.n; ++d) {
    if (BytesToLine(dsts.p[d]) != head) return false;
  }
  return head % element_bytes == 0;
}

// Around the caches, straight from the registers. REQUIRES: AlignedAlike.
template <class Op, class Format, class Srcs>
[[gnu::noinline]] void StreamAligned(const Format& format, const Srcs& srcs, Destinations dsts,
                                     size_t bytes) {
  constexpr int kLanes = Format::kLanes;
  size_t at = BytesToLine(dsts.p[0]);
  if (at > bytes) at = bytes;
  if (at > 0) Span<Op>(format, srcs, dsts, 0, 0, at);
  at += Groups<true, Op, kLanes, 4>(format, srcs, dsts, at, at, bytes - at);
  if (at < bytes) Span<Op>(format, srcs, dsts, at, at, bytes - at);
}

// A reduction without its types.
struct AnySpan {
  void (*span)(const void* format, const void* srcs, Destinations dsts, size_t src_at,
               size_t bytes);  // to the destinations' begin
  const void* format;
  const void* srcs;
};

template <class Op, class Format, class Srcs>
AnySpan Erase(const Format& format, const Srcs& srcs) {
  return {[](const void* f, const void* s, Destinations dsts, size_t src_at, size_t bytes) {
            Span<Op>(*static_cast<const Format*>(f), *static_cast<const Srcs*>(s), dsts, src_at, 0,
                     bytes);
          },
          &format, &srcs};
}

// Around the caches by way of a buffer that stays in the first one: whatever the destinations'
// alignments, and with the code of the ordinary stores.
[[gnu::noinline]] inline void StreamBuffered(const AnySpan& any, Destinations dsts, size_t bytes) {
  constexpr size_t kBlock = 8192;
  alignas(kLineBytes) char buffer[kBlock];
  void* buffers[] = {buffer};
  for (size_t at = 0; at < bytes; at += kBlock) {
    const size_t block = bytes - at < kBlock ? bytes - at : kBlock;
    any.span(any.format, any.srcs, Destinations{buffers, 1}, at, block);
    for (int d = 0; d < dsts.n; ++d) StreamBytes(static_cast<char*>(dsts.p[d]) + at, buffer, block);
  }
}

template <class Op, class Format, class Srcs>
inline void Stream(const Format& format, const Srcs& srcs, Destinations dsts, size_t bytes) {
  if constexpr (Srcs::kFixed && kFastest<Op, Format>) {
    if (AlignedAlike(dsts, sizeof(typename Format::Stored))) {
      StreamAligned<Op>(format, srcs, dsts, bytes);
      return FenceStreams();
    }
  }
  StreamBuffered(Erase<Op>(format, srcs), dsts, bytes);
  FenceStreams();
}

}  // namespace
}  // namespace ronde::kernels
