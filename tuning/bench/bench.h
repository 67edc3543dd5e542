// Bench: what `ronde bench` does inside each rank.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ronde/runtime.h"
#include "tuning/bench/block_plan.h"
#include "tuning/bench/exchange.h"
#include "tuning/bench/operation.h"
#include "tuning/bench/placement.h"
#include "tuning/bench/row.h"

namespace ronde::bench {

struct BenchOptions {
  OpKind kind = OpKind::kAllreduce;
  int64_t min_bytes = 8;
  int64_t max_bytes = 64 << 20;
  double factor = 4;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int64_t iters = 0;    // timed calls per row; 0: as many as fit into a fifth of a second
  int64_t warmup = -1;  // calls before each block; -1: a tenth of a block
  std::vector<Buffers> buffers = {Buffers::kPrivate};
  bool check = false;
  std::string json;  // file that rank 0 writes; empty: none
};

// Nothing measured is a surprise later: kinds, dtypes, operators and buffers that do not go
// together, and sizes out of range, are InvalidArgument, with the value and what is allowed.
Status ValidateOptions(const BenchOptions& options);

// One rank's benchmark. Sizes go up; for each, all candidates (buffers and limits) are measured
// interleaved, sample by sample, in blocks with the class of the cores before and after.
// Owned by main; one thread; the Runtime must outlive it.
class Bench {
 public:
  Bench(Runtime* runtime, const BenchOptions& options);
  ~Bench();

  // Collective; blocks for seconds to minutes. Rank 0 prints the table to stdout as rows are done,
  // and progress to stderr where that is a terminal. Fails when an operation fails.
  Status Run();

  // After Run.
  const std::vector<Row>& rows() const { return rows_; }
  // Over all rows and ranks, if checked.
  int64_t total_wrong() const { return total_wrong_; }

 private:
  struct Candidate;
  struct Size;

  Status Prepare(const std::vector<int64_t>& sizes);
  Status MeasureSize(int64_t bytes);
  Status MakeCandidates(Size* size);
  Status PlanBlocks(Size* size);
  // One block; its times go to the class it was measured in, if it kept that class.
  Status RunBlock(Size* size, bool* steady);
  Result<std::vector<std::vector<int64_t>>> TimeSamples(Size* size);
  Result<std::optional<Placement>> MeasureClass();
  void AddRows(const Size& size);
  void NameSchedule(Row* row) const;
  Status EnoughMemory(int64_t bytes, bool* enough);
  void Progress(const std::string& text) const;
  Status WriteJson() const;
  bool first() const { return runtime_->rank() == 0; }

  Runtime* const runtime_;
  const BenchOptions options_;
  Exchange exchange_;
  std::unique_ptr<SharedMemory> limit_memory_;
  BufferPair private_memory_;
  BufferPair limit_private_memory_;
  CorePair cores_;  // rank 0
  std::vector<Row> rows_;
  int64_t total_wrong_ = 0;
  int dropped_blocks_ = 0;
  double ping_pong_ns_ = 0;
};

}  // namespace ronde::bench
