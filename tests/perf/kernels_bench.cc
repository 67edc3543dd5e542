// How fast the kernels are, beside their limits. Reports; asserts nothing.
//
// Names: type/operator/sources/destinations/bytes per array; "inplace": every destination is a
// source. bytes_per_second counts one array: the algorithm's bandwidth, not the memory's.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "core/kernels/copy.h"
#include "core/kernels/limit.h"
#include "core/kernels/reduce.h"

namespace ronde::kernels {
namespace {

struct Shape {
  DType dtype;
  ReduceOp op;
  int num_srcs;
  int num_dsts;
  bool in_place;
  Store store;
  size_t dst_offset;  // bytes beyond a line of the cache
};

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<char, Free>;

Memory Allocate(size_t bytes) {
  Memory memory(static_cast<char*>(std::aligned_alloc(4096, (bytes + 8191) / 4096 * 4096)));
  FillIdentity(DType::kUint8, ReduceOp::kProduct, memory.get(), bytes + 64);
  return memory;
}

void BM_Reduce(benchmark::State& state, Shape shape, size_t bytes, Isa isa) {
  std::vector<Memory> memory;
  std::vector<const void*> srcs;
  std::vector<void*> dsts;
  for (int k = 0; k < shape.num_srcs; ++k) {
    memory.push_back(Allocate(bytes));
    srcs.push_back(memory.back().get());
    if (shape.in_place && k < shape.num_dsts) dsts.push_back(memory.back().get());
  }
  while (static_cast<int>(dsts.size()) < shape.num_dsts) {
    memory.push_back(Allocate(bytes));
    dsts.push_back(memory.back().get() + shape.dst_offset);
  }
  ReduceArgs args{};
  args.srcs = srcs.data();
  args.num_srcs = shape.num_srcs;
  args.dsts = dsts.data();
  args.num_dsts = shape.num_dsts;
  args.count = bytes / DTypeSize(shape.dtype);
  args.divisor = shape.num_srcs;
  args.store = shape.store;
  const ReduceFn reduce = FindReduce(isa, shape.dtype, shape.op);
  for (auto _ : state) {
    reduce(args);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes));
}

void BM_Copy(benchmark::State& state, size_t bytes, Store store) {
  const Memory src = Allocate(bytes);
  const Memory dst = Allocate(bytes);
  for (auto _ : state) Copy(dst.get(), src.get(), bytes, store);
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes));
}

void BM_StreamAdd(benchmark::State& state, size_t bytes) {
  const Memory a = Allocate(bytes);
  const Memory b = Allocate(bytes);
  const Memory c = Allocate(bytes);
  const auto floats = [](const Memory& m) { return reinterpret_cast<float*>(m.get()); };
  for (auto _ : state) StreamAdd(floats(c), floats(a), floats(b), bytes / sizeof(float));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes));
}

void BM_AddInPlace(benchmark::State& state, size_t bytes) {
  const Memory a = Allocate(bytes);
  const Memory b = Allocate(bytes);
  const auto floats = [](const Memory& m) { return reinterpret_cast<float*>(m.get()); };
  for (auto _ : state) AddInPlace(floats(a), floats(b), bytes / sizeof(float));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes));
}

void RegisterReduce(const Shape& shape, size_t bytes) {
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
    if (!ParseIsa(IsaName(isa)).ok()) continue;
    const std::string name =
        std::string(DTypeName(shape.dtype)) + "/" + std::string(ReduceOpName(shape.op)) + "/" +
        std::to_string(shape.num_srcs) + "/" + std::to_string(shape.num_dsts) + "/" +
        std::to_string(bytes) + (shape.in_place ? "/inplace" : "") +
        (shape.store == Store::kStreaming ? "/streaming" : "/cached") +
        (shape.dst_offset ? "/unaligned" : "") + "/" + std::string(IsaName(isa));
    benchmark::RegisterBenchmark(name.c_str(), BM_Reduce, shape, bytes, isa);
  }
}

void RegisterAll() {
  constexpr size_t kLarge = size_t{64} << 20;
  constexpr size_t kMedium = size_t{64} << 10;
  const auto f32 = DType::kFloat32;
  const auto sum = ReduceOp::kSum;
  for (const size_t bytes : {size_t{8}, size_t{64}, size_t{256}, size_t{1024}, kMedium, kLarge}) {
    RegisterReduce({f32, sum, 2, 1, false, Store::kCached, 0}, bytes);
    RegisterReduce({f32, sum, 2, 2, true, Store::kCached, 0}, bytes);
  }
  for (const int n : {2, 3, 4, 5, 8}) {
    RegisterReduce({f32, sum, n, 1, false, Store::kCached, 0}, kMedium);
    RegisterReduce({f32, sum, n, 1, false, Store::kStreaming, 0}, kLarge);
  }
  RegisterReduce({f32, sum, 2, 1, false, Store::kStreaming, 16}, kLarge);
  RegisterReduce({f32, sum, 2, 2, false, Store::kStreaming, 0}, kLarge);
  RegisterReduce({f32, ReduceOp::kAverage, 2, 1, false, Store::kStreaming, 0}, kLarge);
  for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
    for (int op = 0; op < kNumReduceOps; ++op) {
      const Shape shape{
          static_cast<DType>(dtype), static_cast<ReduceOp>(op), 2, 1, false, Store::kCached, 0};
      if (FindReduce(Isa::kBaseline, shape.dtype, shape.op) == nullptr) continue;
      if (shape.dtype == f32 && shape.op == sum) continue;
      RegisterReduce(shape, kMedium);
    }
  }
  benchmark::RegisterBenchmark("copy/cached", BM_Copy, kLarge, Store::kCached);
  benchmark::RegisterBenchmark("copy/streaming", BM_Copy, kLarge, Store::kStreaming);
  benchmark::RegisterBenchmark("limit/stream_add", BM_StreamAdd, kLarge);
  benchmark::RegisterBenchmark("limit/add_in_place", BM_AddInPlace, kLarge);
}

}  // namespace
}  // namespace ronde::kernels

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  ronde::kernels::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
