// Row: one line of `ronde bench`, and how it is printed and written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "ronde/request.h"
#include "tuning/bench/limit.h"
#include "tuning/bench/placement.h"
#include "tuning/bench/statistics.h"

namespace ronde::bench {

// One collective at one size, on one kind of buffers, in one placement class.
struct Row {
  OpKind kind = OpKind::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int64_t bytes = 0;  // the size that nccl-tests reports (see SizeOperation)
  int64_t count = 0;  // elements of one rank's input
  int ranks = 1;
  Buffers buffers = Buffers::kPrivate;
  Placement placement = Placement::kNear;
  std::string backend;  // that the rules choose, and its schedule
  std::string schedule;
  Summary time_us;               // per call
  std::optional<int64_t> wrong;  // elements over all ranks; absent: not checked
  double limit_us = 0;           // the limit's median, from the same blocks
};

// The column heads, and one line for a row: nccl-tests' columns in its order, then ours.
std::string TableHeader();
std::string TableLine(const Row& row);

// One element of "rows".
nlohmann::json RowJson(const Row& row);

}  // namespace ronde::bench
