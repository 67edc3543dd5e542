#include "core/base/cores.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>

namespace ronde {
namespace {

using testing::ElementsAre;

TEST(CoresTest, ParsesCpuLists) {
  EXPECT_THAT(*ParseCpuList("0"), ElementsAre(0));
  EXPECT_THAT(*ParseCpuList("0-2,8,10-11\n"), ElementsAre(0, 1, 2, 8, 10, 11));
  for (const char* bad : {"", "a", "1-", "2-1", "1,", "1,,2", "-3", "1 2", "1-2-3"}) {
    EXPECT_FALSE(ParseCpuList(bad).ok()) << bad;
  }
}

TEST(CoresTest, QuotaCutsUsableCoresButNotBelowOne) {
  Topology topology;
  topology.cpus = {0, 4, 1, 5, 2, 6, 3, 7};
  EXPECT_EQ(UsableCores(topology), 8);
  topology.quota = 2.9;
  EXPECT_EQ(UsableCores(topology), 2);
  topology.quota = 0.5;
  EXPECT_EQ(UsableCores(topology), 1);
  topology.quota = 64;
  EXPECT_EQ(UsableCores(topology), 8);
}

TEST(CoresTest, ThisMachineHasACore) {
  const Topology topology = ReadTopology();
  EXPECT_GE(topology.cpus.size(), 1u);
  size_t in_nodes = 0;
  for (const auto& node : topology.nodes) in_nodes += node.size();
  EXPECT_EQ(in_nodes, topology.cpus.size());
}

// A folder that looks like /sys/fs/cgroup.
class CoresQuotaTest : public testing::Test {
 protected:
  CoresQuotaTest() {
    std::string pattern = testing::TempDir() + "/cgroupXXXXXX";
    mount_ = mkdtemp(pattern.data());
  }
  ~CoresQuotaTest() override { std::filesystem::remove_all(mount_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = mount_ + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }

  std::string mount_;
};

TEST_F(CoresQuotaTest, NoLimitIsZero) {
  EXPECT_EQ(ReadCpuQuota("0::/\n", mount_), 0);
  Write("/cpu.max", "max 100000\n");
  EXPECT_EQ(ReadCpuQuota("0::/\n", mount_), 0);
  EXPECT_EQ(ReadCpuQuota("garbage", mount_), 0);
}

TEST_F(CoresQuotaTest, Version2TakesTheTightestOnTheWayUp) {
  Write("/a/cpu.max", "150000 100000\n");
  Write("/a/b/cpu.max", "400000 100000\n");
  EXPECT_EQ(ReadCpuQuota("0::/a/b\n", mount_), 1.5);
}

TEST_F(CoresQuotaTest, Version1ReadsQuotaAndPeriod) {
  Write("/cpu/box/cpu.cfs_quota_us", "300000\n");
  Write("/cpu/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(ReadCpuQuota("4:memory:/x\n3:cpu:/box\n0::/\n", mount_), 3);
  Write("/cpu/box/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(ReadCpuQuota("3:cpu:/box\n", mount_), 0);
}

TEST_F(CoresQuotaTest, InAContainerTheHostsPathIsMissingAndTheMountsRootCounts) {
  Write("/cpu,cpuacct/cpu.cfs_quota_us", "50000\n");
  Write("/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(ReadCpuQuota("3:cpu,cpuacct:/docker/abc\n", mount_), 0.5);
}

}  // namespace
}  // namespace ronde
