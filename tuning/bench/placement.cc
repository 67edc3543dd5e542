#include "tuning/bench/placement.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>

#include "core/base/clock.h"

namespace ronde::bench {
namespace {

constexpr double kNearBelowNs = 100;
constexpr double kFarAboveNs = 150;
constexpr int kBatches = 8;
constexpr uint32_t kRoundTrips = 400;  // per batch

struct alignas(64) Line {
  std::atomic<uint32_t> value{0};
};

void PinTo(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  // Best effort: where it is refused, the scheduler places two busy threads on two cores anyway.
  sched_setaffinity(0, sizeof set, &set);
}

void AwaitValue(const Line& line, uint32_t value) {
  // Neither side pauses: a pause costs as much as what is measured. A thread that lost its core
  // spoils one batch, not the best one.
  for (uint32_t spins = 1; line.value.load(std::memory_order_acquire) != value; ++spins) {
    if (spins % (1u << 20) == 0) sched_yield();
  }
}

}  // namespace

std::string_view PlacementName(Placement placement) {
  switch (placement) {
    case Placement::kNear:
      return "near";
    case Placement::kFar:
      return "far";
  }
  return "?";
}

std::optional<Placement> ClassifyPingPong(double one_way_ns) {
  if (one_way_ns < kNearBelowNs) return Placement::kNear;
  if (one_way_ns > kFarAboveNs) return Placement::kFar;
  return std::nullopt;
}

std::vector<int> UsableCpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(static_cast<size_t>(cpu), &set)) cpus.push_back(cpu);
    }
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

double PingPongNs(int cpu_a, int cpu_b) {
  if (cpu_a == cpu_b) return 0;
  constexpr uint32_t kTotal = kBatches * kRoundTrips;
  Line ping;
  Line pong;
  double best_ns = 1e18;
  std::thread echo([&] {
    PinTo(cpu_b);
    for (uint32_t i = 1; i <= kTotal; ++i) {
      AwaitValue(ping, i);
      pong.value.store(i, std::memory_order_release);
    }
  });
  // A thread of its own too, so that the caller's affinity stays as it is.
  std::thread caller([&] {
    PinTo(cpu_a);
    uint32_t i = 0;
    for (int batch = 0; batch < kBatches; ++batch) {
      const int64_t start = NowNs();
      for (uint32_t trip = 0; trip < kRoundTrips; ++trip) {
        ping.value.store(++i, std::memory_order_release);
        AwaitValue(pong, i);
      }
      const auto elapsed = static_cast<double>(NowNs() - start);
      best_ns = std::min(best_ns, elapsed / kRoundTrips / 2);
    }
  });
  caller.join();
  echo.join();
  return best_ns;
}

CorePair PickCores(const std::vector<int>& cpus_of_first, const std::vector<int>& cpus_of_last) {
  CorePair pair{cpus_of_first.front(), cpus_of_last.back()};
  if (pair.a != pair.b) return pair;
  for (const int cpu : cpus_of_first) {
    if (cpu != pair.b) return {cpu, pair.b};
  }
  for (const int cpu : cpus_of_last) {
    if (cpu != pair.a) return {pair.a, cpu};
  }
  return pair;
}

}  // namespace ronde::bench
