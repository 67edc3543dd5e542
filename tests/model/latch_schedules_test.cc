// The latched plan under random schedules: absent and poisoned tensors, operations in other lanes,
// join, plan switch, death and zombies. LATCH_SCHEDULES sets how many schedules each test runs
// (default 20,000).
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/model/latch_model.h"

namespace ronde::model {
namespace {

uint64_t Schedules() {
  const char* text = std::getenv("LATCH_SCHEDULES");
  return text == nullptr ? 20'000 : std::strtoull(text, nullptr, 10);
}

struct Tally {
  uint64_t failed = 0, aborted = 0, switches = 0, waits = 0;
  uint64_t first_seed = 0;
  std::string first;
};

Tally Explore(const Options& options, uint64_t schedules) {
  Tally tally;
  for (uint64_t seed = 0; seed < schedules; ++seed) {
    World world(seed, options);
    const std::string& failure = world.Run();
    if (!failure.empty() && tally.failed++ == 0) {
      tally.first = failure;
      tally.first_seed = seed;
    }
    tally.aborted += world.aborted() ? 1 : 0;
    tally.switches += static_cast<uint64_t>(world.switches());
    tally.waits += world.waits_at_limit() > 0 ? 1 : 0;
  }
  printf(
      "%lu schedules: %lu failed, %lu aborted, %lu plan switches, a rank waited at its promise in "
      "%lu\n",
      schedules, tally.failed, tally.aborted, tally.switches, tally.waits);
  if (tally.failed > 0) printf("  first: seed %lu: %s\n", tally.first_seed, tally.first.c_str());
  return tally;
}

void ExpectHolds(const Options& options) {
  const Tally tally = Explore(options, Schedules());
  EXPECT_EQ(tally.failed, 0u) << "seed " << tally.first_seed << ": " << tally.first;
}

void ExpectBreaks(const Options& options) {
  EXPECT_GT(Explore(options, 5'000).failed, 0u);
}

TEST(Latch, PlanAlone) {
  ExpectHolds({.operations = false, .plan_switch = false});
}
TEST(Latch, OtherLanes) {
  ExpectHolds({.plan_switch = false});
}
TEST(Latch, PlanSwitch) {
  ExpectHolds({});
}
TEST(Latch, Join) {
  ExpectHolds({.join = true});
}
TEST(Latch, Death) {
  ExpectHolds({.join = true, .death = true});
}
TEST(Latch, DeathAndZombies) {
  ExpectHolds({.death = true, .stall = true});
}

TEST(Latch, PromiseOfOneStepIsRightButWaits) {
  const Options tight{.promise = 1, .slack = 1};
  EXPECT_EQ(Explore(tight, Schedules() / 4).failed, 0u);
}

TEST(LatchBroken, SwitchOneStepTooEarly) {
  ExpectBreaks({.promise = 2, .slack = 1});
}
TEST(LatchBroken, ProposalBeforeTheLastSwitchIsOver) {
  ExpectBreaks({.propose_early = true});
}
TEST(LatchBroken, NextStepBeforeAllAreDone) {
  ExpectBreaks({.publish_early = true});
}
TEST(LatchBroken, OwnReadingInsteadOfTheVerdict) {
  ExpectBreaks({.death = true, .stall = true, .act_on_own_reading = true});
}

}  // namespace
}  // namespace ronde::model
