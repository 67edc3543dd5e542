#include "tuning/bench/sizes.h"

#include <gmock/gmock.h>

namespace ronde::bench {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(BenchSizesTest, SuffixesAreBinary) {
  for (const auto& [text, bytes] : std::vector<std::pair<const char*, int64_t>>{{"8", 8},
                                                                                {"4K", 4096},
                                                                                {"4k", 4096},
                                                                                {"1.5M", 1572864},
                                                                                {"2GiB", 1LL << 31},
                                                                                {"16MB", 16 << 20},
                                                                                {"3B", 3}}) {
    const Result<int64_t> parsed = ParseSize(text);
    ASSERT_TRUE(parsed.ok()) << text << ": " << parsed.status().ToString();
    EXPECT_EQ(*parsed, bytes) << text;
  }
}

TEST(BenchSizesTest, BadSizesAreNamed) {
  for (const char* text : {"", "K", "0", "-4", "4X", "4KK", "nan", "inf", "1e300", "0x10", " 4"}) {
    const Result<int64_t> parsed = ParseSize(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(parsed.status().ToString(),
                AllOf(HasSubstr(std::string("'") + text + "'"), HasSubstr("must be")));
  }
}

TEST(BenchSizesTest, FormattedSizesParseBack) {
  for (const int64_t bytes :
       {int64_t{1}, int64_t{1000}, int64_t{1536}, int64_t{1} << 20, int64_t{3} << 30}) {
    EXPECT_EQ(ParseSize(FormatSize(bytes)).value(), bytes) << FormatSize(bytes);
  }
  EXPECT_EQ(FormatSize(1536), "1536");
  EXPECT_EQ(FormatSize(4096), "4K");
}

TEST(BenchSizesTest, SweepIncludesBothEnds) {
  EXPECT_THAT(SweepSizes(8, 512, 4).value(), ElementsAre(8, 32, 128, 512));
  EXPECT_THAT(SweepSizes(8, 500, 4).value(), ElementsAre(8, 32, 128));
  EXPECT_THAT(SweepSizes(64, 64, 1).value(), ElementsAre(64));
}

TEST(BenchSizesTest, SmallFactorsRepeatNoSize) {
  EXPECT_THAT(SweepSizes(1, 4, 1.3).value(), ElementsAre(1, 2, 3, 4));
}

TEST(BenchSizesTest, ImpossibleSweepsAreErrors) {
  EXPECT_EQ(SweepSizes(64, 8, 2).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(SweepSizes(0, 8, 2).status().code(), Code::kInvalidArgument);
  EXPECT_THAT(SweepSizes(8, 64, 1).status().ToString(), HasSubstr("factor 1"));
}

}  // namespace
}  // namespace ronde::bench
