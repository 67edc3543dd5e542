#include "core/launch/affinity.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>

namespace ronde::launch {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string MessageOf(const Status& status) {
  return status.ToString();
}

Topology EightCores() {
  Topology topology;
  topology.cpus = {0, 4, 1, 5, 2, 6, 3, 7};
  topology.nodes = {{0, 4, 1, 5}, {2, 6, 3, 7}};
  return topology;
}

TEST(LaunchAffinityTest, ParsesCpuLists) {
  EXPECT_THAT(*ParseCpuList("0"), ElementsAre(0));
  EXPECT_THAT(*ParseCpuList("0-2,8,10-11\n"), ElementsAre(0, 1, 2, 8, 10, 11));
  for (const char* bad : {"", "a", "1-", "2-1", "1,", "1,,2", "-3", "1 2", "1-2-3"}) {
    EXPECT_FALSE(ParseCpuList(bad).ok()) << bad;
  }
}

TEST(LaunchAffinityTest, CoresAreSplitEquallyAndDisjointly) {
  const auto two = PlanBinding(Bind::kCore, 2, EightCores());
  ASSERT_TRUE(two.ok());
  EXPECT_THAT(*two, ElementsAre(ElementsAre(0, 4, 1, 5), ElementsAre(2, 6, 3, 7)));
  const auto three = PlanBinding(Bind::kCore, 3, EightCores());
  ASSERT_TRUE(three.ok());
  EXPECT_THAT(*three, ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5, 2), ElementsAre(6, 3, 7)));
}

TEST(LaunchAffinityTest, MoreRanksThanCoresIsRefusedWithWhatIsAllowed) {
  const auto plan = PlanBinding(Bind::kCore, 9, EightCores());
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(MessageOf(plan.status()),
              AllOf(HasSubstr("9 ranks"), HasSubstr("-n 8"), HasSubstr("--bind none")));
}

TEST(LaunchAffinityTest, NumaGivesNeighbouringRanksOneNode) {
  const auto plan = PlanBinding(Bind::kNuma, 4, EightCores());
  ASSERT_TRUE(plan.ok());
  const std::vector<std::vector<int>>& nodes = EightCores().nodes;
  EXPECT_THAT(*plan, ElementsAre(nodes[0], nodes[0], nodes[1], nodes[1]));
}

TEST(LaunchAffinityTest, NoneBindsNobody) {
  const auto plan = PlanBinding(Bind::kNone, 2, EightCores());
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(*plan, ElementsAre(testing::IsEmpty(), testing::IsEmpty()));
}

TEST(LaunchAffinityTest, BindNames) {
  EXPECT_EQ(*ParseBind("numa"), Bind::kNuma);
  EXPECT_THAT(MessageOf(ParseBind("socket").status()),
              AllOf(HasSubstr("'socket'"), HasSubstr("none, core or numa")));
}

TEST(LaunchAffinityTest, QuotaCutsUsableCoresButNotBelowOne) {
  Topology topology = EightCores();
  EXPECT_EQ(UsableCores(topology), 8);
  topology.quota = 2.9;
  EXPECT_EQ(UsableCores(topology), 2);
  topology.quota = 0.5;
  EXPECT_EQ(UsableCores(topology), 1);
  topology.quota = 64;
  EXPECT_EQ(UsableCores(topology), 8);
}

TEST(LaunchAffinityTest, ThisMachineHasACore) {
  const Topology topology = ReadTopology();
  EXPECT_GE(topology.cpus.size(), 1u);
  size_t in_nodes = 0;
  for (const auto& node : topology.nodes) in_nodes += node.size();
  EXPECT_EQ(in_nodes, topology.cpus.size());
}

// A folder that looks like /sys/fs/cgroup.
class LaunchQuotaTest : public testing::Test {
 protected:
  LaunchQuotaTest() {
    std::string pattern = testing::TempDir() + "/cgroupXXXXXX";
    mount_ = mkdtemp(pattern.data());
  }
  ~LaunchQuotaTest() override { std::filesystem::remove_all(mount_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = mount_ + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }

  std::string mount_;
};

TEST_F(LaunchQuotaTest, NoLimitIsZero) {
  EXPECT_EQ(ReadCpuQuota("0::/\n", mount_), 0);
  Write("/cpu.max", "max 100000\n");
  EXPECT_EQ(ReadCpuQuota("0::/\n", mount_), 0);
  EXPECT_EQ(ReadCpuQuota("garbage", mount_), 0);
}

TEST_F(LaunchQuotaTest, Version2TakesTheTightestOnTheWayUp) {
  Write("/a/cpu.max", "150000 100000\n");
  Write("/a/b/cpu.max", "400000 100000\n");
  EXPECT_EQ(ReadCpuQuota("0::/a/b\n", mount_), 1.5);
}

TEST_F(LaunchQuotaTest, Version1ReadsQuotaAndPeriod) {
  Write("/cpu/box/cpu.cfs_quota_us", "300000\n");
  Write("/cpu/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(ReadCpuQuota("4:memory:/x\n3:cpu:/box\n0::/\n", mount_), 3);
  Write("/cpu/box/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(ReadCpuQuota("3:cpu:/box\n", mount_), 0);
}

TEST_F(LaunchQuotaTest, InAContainerTheHostsPathIsMissingAndTheMountsRootCounts) {
  Write("/cpu,cpuacct/cpu.cfs_quota_us", "50000\n");
  Write("/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(ReadCpuQuota("3:cpu,cpuacct:/docker/abc\n", mount_), 0.5);
}

}  // namespace
}  // namespace ronde::launch
