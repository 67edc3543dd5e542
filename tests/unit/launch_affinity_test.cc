#include "core/launch/affinity.h"

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

}  // namespace
}  // namespace ronde::launch
