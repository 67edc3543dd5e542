// The whole benchmark on two ranks that are threads: what it finds must not depend on times.
#include <fstream>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/support/ranks.h"
#include "tuning/bench/bench.h"

namespace ronde::bench {
namespace {

using ::testing::HasSubstr;

BenchOptions SmallSweep(OpKind kind) {
  BenchOptions options;
  options.kind = kind;
  options.min_bytes = 4096;
  options.max_bytes = 4096;
  options.iters = 10;
  options.warmup = 1;
  options.check = true;
  if (kind == OpKind::kAllreduce) options.buffers = {Buffers::kPrivate, Buffers::kArena};
  return options;
}

TEST(BenchRunTest, EveryCollectiveRunsAndIsRight) {
  for (int k = 0; k < kNumOpKinds; ++k) {
    const BenchOptions options = SmallSweep(static_cast<OpKind>(k));
    ronde::testing::RunRankThreads(2, [&](Runtime& runtime) {
      Bench bench(&runtime, options);
      const Status status = bench.Run();
      EXPECT_TRUE(status.ok()) << status.ToString();
      EXPECT_EQ(bench.total_wrong(), 0);
      for (const Row& row : bench.rows()) {
        EXPECT_EQ(row.kind, options.kind);
        EXPECT_EQ(row.ranks, 2);
        EXPECT_GT(row.time_us.median, 0);
        EXPECT_LE(row.time_us.min, row.time_us.median);
        EXPECT_LE(row.time_us.median, row.time_us.max);
        EXPECT_EQ(row.wrong, 0);
      }
    });
  }
}

TEST(BenchRunTest, RankZeroWritesTheJson) {
  const ronde::testing::TempDir directory;
  BenchOptions options = SmallSweep(OpKind::kAllreduce);
  options.dtype = DType::kBfloat16;
  options.op = ReduceOp::kAverage;
  options.json = directory.path() + "/rows.json";
  ronde::testing::RunRankThreads(2, [&](Runtime& runtime) {
    const Status status = Bench(&runtime, options).Run();
    EXPECT_TRUE(status.ok()) << status.ToString();
  });
  std::ifstream file(options.json);
  const nlohmann::json document = nlohmann::json::parse(file);
  EXPECT_EQ(document["config"]["collective"], "allreduce");
  EXPECT_EQ(document["config"]["dtype"], "bfloat16");
  ASSERT_TRUE(document["rows"].is_array());
  for (const nlohmann::json& row : document["rows"]) EXPECT_EQ(row["op"], "average");
}

TEST(BenchRunTest, AnUnwritableFileIsAnError) {
  BenchOptions options = SmallSweep(OpKind::kBarrier);
  options.json = "/nonexistent/rows.json";
  ronde::testing::RunRankThreads(1, [&](Runtime& runtime) {
    EXPECT_THAT(Bench(&runtime, options).Run().ToString(), HasSubstr("/nonexistent/rows.json"));
  });
}

TEST(BenchRunTest, OptionsThatDoNotFitAreNamed) {
  BenchOptions options;
  options.kind = OpKind::kBroadcast;
  options.buffers = {Buffers::kArena};
  EXPECT_THAT(ValidateOptions(options).ToString(), HasSubstr("--buffers arena"));
  options.kind = OpKind::kAllreduce;
  options.dtype = DType::kBool;
  options.op = ReduceOp::kAverage;
  EXPECT_THAT(ValidateOptions(options).ToString(), HasSubstr("--op average"));
  options.op = ReduceOp::kSum;
  options.min_bytes = 100;
  options.max_bytes = 10;
  EXPECT_EQ(ValidateOptions(options).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace ronde::bench
