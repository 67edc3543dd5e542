#include "ronde/config.h"

#include <cstdlib>
#include <map>

#include <gmock/gmock.h>

namespace ronde {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Result<Config> FromMap(const std::map<std::string, std::string>& values) {
  return Config::From([&](const std::string& name) -> std::optional<std::string> {
    const auto it = values.find(name);
    if (it == values.end()) return std::nullopt;
    return it->second;
  });
}

std::string MessageOf(const Result<Config>& result) {
  return result.status().ToString();
}

TEST(ConfigTest, DefaultsAreAJobOfSizeOne) {
  const Result<Config> config = FromMap({});
  ASSERT_TRUE(config.ok()) << MessageOf(config);
  EXPECT_EQ(config->rank, 0);
  EXPECT_EQ(config->size, 1);
  EXPECT_EQ(config->timeout_ms, 600'000);
}

TEST(ConfigTest, ParsesUnits) {
  const Result<Config> config = FromMap(
      {{"RONDE_TIMEOUT_S", "1.5"}, {"RONDE_BUCKET_BYTES", "2M"}, {"RONDE_FUSION_BYTES", "0"}});
  ASSERT_TRUE(config.ok()) << MessageOf(config);
  EXPECT_EQ(config->timeout_ms, 1500);
  EXPECT_EQ(config->bucket_bytes, 2 << 20);
  EXPECT_EQ(config->fusion_bytes, 0);
}

TEST(ConfigTest, BadValuesNameVariableValueAndWhatIsAllowed) {
  for (const auto& [name, value] : std::map<std::string, std::string>{{"RONDE_TIMEOUT_S", "soon"},
                                                                      {"RONDE_SIZE", "0"},
                                                                      {"RONDE_BUCKET_BYTES", "1K"},
                                                                      {"RONDE_OVERLAP", "maybe"},
                                                                      {"RONDE_KERNELS", "sse9"},
                                                                      {"RONDE_SPIN_US", "-1"}}) {
    const Result<Config> config = FromMap({{name, value}});
    ASSERT_FALSE(config.ok()) << name;
    EXPECT_EQ(config.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(MessageOf(config), AllOf(HasSubstr(name), HasSubstr(value), HasSubstr("must be")));
  }
}

TEST(ConfigTest, RankMustBeBelowSize) {
  const Result<Config> config =
      FromMap({{"RONDE_RANK", "2"}, {"RONDE_SIZE", "2"}, {"RONDE_RENDEZVOUS", "/tmp/x"}});
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(MessageOf(config), HasSubstr("RONDE_RANK='2'"));
}

TEST(ConfigTest, SeveralRanksNeedARendezvous) {
  const Result<Config> config = FromMap({{"RONDE_SIZE", "2"}});
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(MessageOf(config), HasSubstr("ronde run"));
}

TEST(ConfigTest, UnknownVariableIsAnErrorWithASuggestion) {
  setenv("RONDE_TIMEOUTS", "3", 1);
  const Result<Config> config = Config::FromEnvironment();
  unsetenv("RONDE_TIMEOUTS");
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(MessageOf(config), AllOf(HasSubstr("RONDE_TIMEOUTS"), HasSubstr("RONDE_TIMEOUT_S")));
}

TEST(ConfigTest, DescriptionShowsEffectiveValuesThatParseBack) {
  const Result<Config> config = FromMap(
      {{"RONDE_BUCKET_BYTES", "3M"}, {"RONDE_OVERLAP", "on"}, {"RONDE_STALL_WARN_S", "2.5"}});
  ASSERT_TRUE(config.ok());
  std::map<std::string, std::string> described;
  for (const ConfigEntry& entry : DescribeConfig(*config)) described[entry.name] = entry.value;
  EXPECT_EQ(described["RONDE_BUCKET_BYTES"], "3M");
  EXPECT_EQ(described["RONDE_OVERLAP"], "on");
  EXPECT_EQ(described["RONDE_STALL_WARN_S"], "2.5");
  const Result<Config> again = FromMap(described);
  ASSERT_TRUE(again.ok()) << MessageOf(again);
  EXPECT_EQ(again->bucket_bytes, config->bucket_bytes);
}

}  // namespace
}  // namespace ronde
