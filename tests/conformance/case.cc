#include "tests/conformance/case.h"

#include <array>
#include <random>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace ronde::conformance {
namespace {

constexpr std::array<std::pair<double, double>, 4> kScales = {
    {{1.0, 1.0}, {0.5, 1.0}, {1.0, 3.0}, {0.25, -2.0}}};
constexpr std::array<const char*, 7> kSizeNames = {"empty", "one",       "odd",  "prime",
                                                   "cell",  "just over", "large"};
constexpr std::array<const char*, 3> kOutputNames = {"in place", "given", "allocated"};
constexpr std::array<const char*, 4> kCallNames = {"Run", "Submit", "named Run", "named shuffled"};
constexpr std::array<const char*, 2> kDataNames = {"exact", "random"};
constexpr std::array<int, 2> kTensors = {1, 3};

constexpr int kDimensions = 10;
using Point = std::array<int, kDimensions>;

Point Extent(const BackendUnderTest& backend) {
  return {kNumOpKinds,       static_cast<int>(backend.rank_counts.size()),
          kSizeNames.size(), kOutputNames.size(),
          kNumDTypes,        kNumReduceOps,
          kScales.size(),    kTensors.size(),
          kCallNames.size(), kDataNames.size()};
}

Case CaseAt(const Point& p, const BackendUnderTest& backend) {
  Case c;
  c.kind = static_cast<OpKind>(p[0]);
  c.ranks = backend.rank_counts[static_cast<size_t>(p[1])];
  c.size = static_cast<Size>(p[2]);
  c.output = static_cast<Output>(p[3]);
  c.dtype = static_cast<DType>(p[4]);
  c.op = static_cast<ReduceOp>(p[5]);
  c.scale = p[6];
  c.tensors = kTensors[static_cast<size_t>(p[7])];
  c.call = static_cast<Call>(p[8]);
  c.data = static_cast<Data>(p[9]);
  return c;
}

bool Reduces(OpKind kind) {
  return kind == OpKind::kAllreduce || kind == OpKind::kReducescatter;
}

// Dimensions that mean nothing for an operation stay at 0.
bool Meaningful(const Case& c) {
  if (!Reduces(c.kind) && (c.op != ReduceOp::kSum || c.scale != 0 || c.data != Data::kExact)) {
    return false;
  }
  const bool same_size = c.kind == OpKind::kAllreduce || c.kind == OpKind::kBroadcast;
  if (!same_size && c.output == Output::kInPlace) return false;
  if (c.kind == OpKind::kBarrier &&
      (c.size != Size::kNothing || c.dtype != DType::kBool || c.tensors != 1)) {
    return false;
  }
  return c.dtype != DType::kBool || c.op != ReduceOp::kAverage;
}

// Two values that meet: (dimension, value, dimension, value).
using Pair = std::array<int, 4>;

template <typename F>
void ForEachPair(const Point& p, F&& f) {
  for (int a = 0; a < kDimensions; ++a) {
    for (int b = a + 1; b < kDimensions; ++b) f(Pair{a, p[a], b, p[b]});
  }
}

Point RandomPoint(const Point& extent, std::mt19937_64& random) {
  Point p;
  for (size_t d = 0; d < p.size(); ++d) {
    p[d] = static_cast<int>(random() % static_cast<uint64_t>(extent[d]));
  }
  return p;
}

}  // namespace

double Case::prescale() const {
  return kScales[static_cast<size_t>(scale)].first;
}
double Case::postscale() const {
  return kScales[static_cast<size_t>(scale)].second;
}

std::string Case::ToString() const {
  return fmt::format(
      "{} of {} {} ({} data, {}), operator {}, scales {} and {}, {}, {} ranks, {}",
      OpKindName(kind), tensors, DTypeName(dtype), kDataNames[static_cast<size_t>(data)],
      kSizeNames[static_cast<size_t>(size)], ReduceOpName(op), prescale(), postscale(),
      kOutputNames[static_cast<size_t>(output)], ranks, kCallNames[static_cast<size_t>(call)]);
}

int64_t CountOf(const Case& c, const BackendUnderTest& backend) {
  constexpr int64_t kCellBytes = 32768;
  const auto element = static_cast<int64_t>(DTypeSize(c.dtype));
  switch (c.size) {
    case Size::kNothing:
      return 0;
    case Size::kOne:
      return 1;
    case Size::kOdd:
      return 37;
    case Size::kPrime:
      return 1009;
    case Size::kCell:
      return kCellBytes / element;
    case Size::kJustOver:
      return kCellBytes / element + 1;
    case Size::kLarge:
      return backend.large_bytes / element + 1;
  }
  return 0;
}

std::vector<Case> FullGrid(const BackendUnderTest& backend) {
  const Point extent = Extent(backend);
  std::vector<Case> cases;
  Point p{};
  for (;;) {
    if (const Case c = CaseAt(p, backend); Meaningful(c)) cases.push_back(c);
    size_t d = 0;
    while (d < p.size() && ++p[d] == extent[d]) p[d++] = 0;
    if (d == p.size()) return cases;
  }
}

std::vector<Case> PairwiseCover(const BackendUnderTest& backend, uint64_t seed) {
  constexpr int kCandidates = 300;  // the best of so many random points is taken
  const Point extent = Extent(backend);
  std::mt19937_64 random(seed);
  std::set<Pair> met;
  std::vector<Case> cases;
  for (;;) {
    Point best{};
    int most = 0;
    for (int i = 0; i < kCandidates; ++i) {
      const Point p = RandomPoint(extent, random);
      if (!Meaningful(CaseAt(p, backend))) continue;
      int fresh = 0;
      ForEachPair(p, [&](const Pair& pair) { fresh += !met.contains(pair); });
      if (fresh <= most) continue;
      most = fresh;
      best = p;
    }
    // Pairs that no meaningful case has are never met; that the search runs dry is the end.
    if (most == 0) return cases;
    ForEachPair(best, [&](const Pair& pair) { met.insert(pair); });
    cases.push_back(CaseAt(best, backend));
  }
}

}  // namespace ronde::conformance
