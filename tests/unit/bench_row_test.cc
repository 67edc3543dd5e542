#include "tuning/bench/row.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tuning/bench/formulas.h"

namespace ronde::bench {
namespace {

using testing::HasSubstr;
using testing::UnorderedElementsAre;

TEST(BenchFormulasTest, SizesOfAllreduceAreTheTensor) {
  const Sizing sizing = SizeOperation(OpKind::kAllreduce, 1023, 4, 3);
  EXPECT_EQ(sizing.bytes, 1020);
  EXPECT_EQ(sizing.input_count, 255);
  EXPECT_EQ(sizing.output_count, 255);
  EXPECT_EQ(SizeOperation(OpKind::kAllreduce, 1, 8, 2).input_count, 1);
}

TEST(BenchFormulasTest, SizesOfPartsAreTheTotal) {
  // 1000 / 3 = 333, down to 320 = 20 units of 16 bytes = 80 elements each.
  const Sizing gather = SizeOperation(OpKind::kAllgather, 1000, 4, 3);
  EXPECT_EQ(gather.input_count, 80);
  EXPECT_EQ(gather.output_count, 240);
  EXPECT_EQ(gather.bytes, 960);
  const Sizing scatter = SizeOperation(OpKind::kReducescatter, 1000, 4, 3);
  EXPECT_EQ(scatter.input_count, 240);
  EXPECT_EQ(scatter.output_count, 80);
  EXPECT_EQ(SizeOperation(OpKind::kAlltoall, 8, 4, 4).input_count, 4);
}

TEST(BenchFormulasTest, BandwidthsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(AlgBandwidth(1'000'000, 1000), 1.0);
  EXPECT_DOUBLE_EQ(AlgBandwidth(8, 0), 0);
  EXPECT_DOUBLE_EQ(BusFactor(OpKind::kAllreduce, 2), 1.0);
  EXPECT_DOUBLE_EQ(BusFactor(OpKind::kAllreduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(BusFactor(OpKind::kAllgather, 4), 0.75);
  EXPECT_DOUBLE_EQ(BusFactor(OpKind::kBroadcast, 4), 1.0);
}

Row ExampleRow() {
  Row row;
  row.bytes = 4'000'000;
  row.count = 1'000'000;
  row.ranks = 4;
  row.buffers = Buffers::kArena;
  row.placement = Placement::kFar;
  row.backend = "shm";
  row.schedule = "inplace";
  row.time_us = {900, 1000, 1500, 2000};
  row.wrong = 3;
  row.limit_us = 800;
  return row;
}

TEST(BenchRowTest, JsonHasTheAgreedKeys) {
  const nlohmann::json json = RowJson(ExampleRow());
  std::vector<std::string> keys;
  for (const auto& item : json.items()) keys.push_back(item.key());
  EXPECT_THAT(keys, UnorderedElementsAre("collective", "dtype", "op", "bytes", "count", "ranks",
                                         "buffers", "class", "backend", "schedule", "time_us",
                                         "algbw_gbs", "busbw_gbs", "wrong", "limit_us"));
  EXPECT_EQ(json["class"], "far");
  EXPECT_EQ(json["buffers"], "arena");
  EXPECT_EQ(json["time_us"]["p95"], 1500.0);
  EXPECT_DOUBLE_EQ(json["algbw_gbs"].get<double>(), 4.0);
  EXPECT_DOUBLE_EQ(json["busbw_gbs"].get<double>(), 6.0);
  EXPECT_EQ(json["wrong"], 3);
}

TEST(BenchRowTest, UncheckedRowsSayNotApplicable) {
  Row row = ExampleRow();
  row.wrong.reset();
  EXPECT_TRUE(RowJson(row)["wrong"].is_null());
  EXPECT_THAT(TableLine(row), HasSubstr("N/A"));
}

TEST(BenchRowTest, LinesStandUnderTheirHeads) {
  const std::string header = TableHeader();
  const std::string line = TableLine(ExampleRow());
  EXPECT_EQ(header.find('\n') + 1, line.size());
  EXPECT_THAT(line, HasSubstr("4000000"));
  EXPECT_THAT(line, HasSubstr("float32"));
}

}  // namespace
}  // namespace ronde::bench
