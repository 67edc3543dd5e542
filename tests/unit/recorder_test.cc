#include "core/base/recorder.h"

#include <cstdio>
#include <fstream>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

namespace ronde {
namespace {

using testing::HasSubstr;

struct Line {
  long long ns = -1;
  char hop[32] = "";
  unsigned id = 0;
  unsigned long long value = 0;
};

std::vector<Line> DumpOf(const Recorder& recorder) {
  const std::string path = testing::TempDir() + "/recorder_test.jsonl";
  EXPECT_TRUE(recorder.Dump(path).ok());
  std::vector<Line> lines;
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    Line line;
    EXPECT_EQ(
        std::sscanf(text.c_str(), R"({"ns": %lld, "hop": "%31[a-z-]", "id": %u, "value": %llu})",
                    &line.ns, line.hop, &line.id, &line.value),
        4)
        << text;
    lines.push_back(line);
  }
  std::remove(path.c_str());
  return lines;
}

TEST(RecorderTest, KeepsTheLastEventsInOrder) {
  Recorder recorder(4);
  for (uint32_t i = 0; i < 10; ++i) recorder.Record(Hop::kBucketArrive, i, uint64_t{1} << 40 | i);
  const std::vector<Line> lines = DumpOf(recorder);
  ASSERT_EQ(lines.size(), 4u);
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_STREQ(lines[i].hop, "bucket-arrive");
    EXPECT_EQ(lines[i].id, i + 6);
    EXPECT_EQ(lines[i].value, uint64_t{1} << 40 | (i + 6));
    EXPECT_GE(lines[i].ns, i == 0 ? 0 : lines[i - 1].ns);
  }
}

TEST(RecorderTest, ConcurrentWritersLoseNothingAndMixNothing) {
  constexpr uint32_t kThreads = 4;
  constexpr uint64_t kEvents = 5000;
  Recorder recorder(kThreads * kEvents);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&recorder, t] {
      for (uint64_t i = 0; i < kEvents; ++i) recorder.Record(Hop::kChunk, t, i * kThreads + t);
    });
  }
  DumpOf(recorder);  // beside the writers
  for (std::thread& thread : threads) thread.join();
  std::vector<uint64_t> next(kThreads, 0);
  for (const Line& line : DumpOf(recorder)) {
    ASSERT_LT(line.id, kThreads);
    EXPECT_EQ(line.value, next[line.id]++ * kThreads + line.id);
  }
  EXPECT_EQ(next, std::vector<uint64_t>(kThreads, kEvents));
}

TEST(RecorderTest, OffRecordsNothing) {
  Recorder recorder(0);
  recorder.Record(Hop::kAbort, 1, 2);
  EXPECT_TRUE(DumpOf(recorder).empty());
}

TEST(RecorderTest, AnUnwritablePathIsNamed) {
  const Status status = Recorder(4).Dump("/nonexistent/rank-0.jsonl");
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_THAT(status.ToString(), HasSubstr("'/nonexistent/rank-0.jsonl'"));
}

}  // namespace
}  // namespace ronde
