// Statistics over the times of one block or row. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ronde::bench {

// Of a set of times, in the unit of the input.
struct Summary {
  double min = 0;
  double median = 0;
  double p95 = 0;  // nearest rank: the least value that 95 % of all do not exceed
  double max = 0;
};

// All zero for no values. The median of an even number of values is the mean of the middle two.
Summary Summarize(std::vector<double> values);

// Times of a group's samples, from the completion stamps of each rank, on one clock: stamps[r][0]
// is when rank r began the first sample, stamps[r][i] when it completed sample i. Sample i lasts
// from when the last rank had completed the sample before until the last rank has completed it, so
// the times add up to the whole and no skew between ranks is counted twice.
// REQUIRES: all ranks have the same number of stamps.
std::vector<double> GroupTimes(std::span<const std::vector<int64_t>> stamps);

}  // namespace ronde::bench
