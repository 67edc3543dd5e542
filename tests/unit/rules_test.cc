#include "core/plan/rules.h"

#include <gtest/gtest.h>

namespace ronde {
namespace {

TEST(RulesTest, RulesOfAllKindsArePrintedOnce) {
  EXPECT_EQ(RuleTable::Make("")->ToString(),
            "*:0-32K=shm/oneshot\n"
            "*:32769-=shm/staged\n");
}

TEST(RulesTest, WhatIsPrintedMakesTheSameTable) {
  const RuleTable table = *RuleTable::Make("allreduce:1M-=shm/cached; *:4M-8M=shm/streamed@1M");
  const std::string text = table.ToString();
  EXPECT_NE(text.find("\nallreduce:1M-=shm/cached\n"), std::string::npos) << text;
  std::string typed = text;
  for (char& c : typed) {
    if (c == '\n') c = ';';
  }
  const Result<RuleTable> again = RuleTable::Make(typed);
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  for (int k = 0; k < kNumOpKinds; ++k) {
    for (const int64_t bytes : {0, 32768, 32769, 1 << 20, 4 << 20, 9 << 20}) {
      const Rule& a = table.Find(static_cast<OpKind>(k), bytes);
      const Rule& b = again->Find(static_cast<OpKind>(k), bytes);
      EXPECT_EQ(a.schedule, b.schedule) << k << " " << bytes;
      EXPECT_EQ(a.chunk_bytes, b.chunk_bytes) << k << " " << bytes;
    }
  }
  EXPECT_NE(table.Hash(), RuleTable::Make("")->Hash());
}

TEST(RulesTest, ABadRuleIsNamed) {
  const Status status = RuleTable::Make("allreduce:0-1=shm/magic").status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.ToString().find("'allreduce:0-1=shm/magic'"), std::string::npos)
      << status.ToString();
}

}  // namespace
}  // namespace ronde
