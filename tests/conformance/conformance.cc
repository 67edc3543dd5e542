#include "tests/conformance/conformance.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tests/conformance/case.h"
#include "tests/conformance/case_data.h"
#include "tests/support/ranks.h"

namespace ronde::conformance {
namespace {

constexpr uint64_t kDefaultSeed = 20260101;
constexpr char kFiller = 0x5a;  // of outputs before they are written

uint64_t Seed() {
  const char* text = std::getenv("CONFORMANCE_SEED");
  return text == nullptr ? kDefaultSeed : std::strtoull(text, nullptr, 10);
}

std::vector<Case> Cases(const BackendUnderTest& backend) {
  const char* text = std::getenv("CONFORMANCE_GRID");
  if (text != nullptr && std::string_view(text) == "full") return FullGrid(backend);
  return PairwiseCover(backend, Seed());
}

// One case's data, made when its first rank needs it.
class LazyData {
 public:
  LazyData(const Case& c, const BackendUnderTest& backend, uint64_t seed)
      : case_(c), backend_(backend), seed_(seed) {}
  const CaseData& Get() {
    std::call_once(made_, [this] { data_ = std::make_unique<CaseData>(case_, backend_, seed_); });
    return *data_;
  }
  // To be called once by each rank, when it needs the data no more.
  void Drop() {
    if (dropped_.fetch_add(1) + 1 == case_.ranks) data_.reset();
  }
  const Case& the_case() const { return case_; }

 private:
  const Case case_;
  const BackendUnderTest& backend_;
  const uint64_t seed_;
  std::once_flag made_;
  std::atomic<int> dropped_{0};
  std::unique_ptr<CaseData> data_;
};

using CaseList = std::vector<std::unique_ptr<LazyData>>;

CaseList WithRanks(const std::vector<Case>& cases, int ranks, const BackendUnderTest& backend) {
  CaseList list;
  for (size_t i = 0; i < cases.size(); ++i) {
    if (cases[i].ranks != ranks) continue;
    list.push_back(std::make_unique<LazyData>(cases[i], backend, Seed() + i));
  }
  return list;
}

// One rank's part in one case: its buffers, its request, and the check of what came out.
class Attempt {
 public:
  Attempt(LazyData* lazy, int rank, std::string name)
      : lazy_(lazy), data_(lazy->Get()), rank_(static_cast<size_t>(rank)), name_(std::move(name)) {
    const Case& c = data_.c;
    request_.kind = c.kind;
    request_.op = c.op;
    request_.prescale = c.prescale();
    request_.postscale = c.postscale();
    request_.root = data_.root;
    request_.name = name_;
    if (c.kind == OpKind::kBarrier) return;
    if (c.kind == OpKind::kAlltoall) request_.splits = data_.splits[rank_];
    for (size_t t = 0; t < static_cast<size_t>(c.tensors); ++t) AddTensor(t);
    request_.inputs = inputs_;
    request_.outputs = outputs_;
  }
  ~Attempt() { lazy_->Drop(); }

  const Request& request() const { return request_; }
  bool allocates() const { return data_.c.output == Output::kAllocated; }

  void Check(const Status& status, const Work& work) const {
    ASSERT_TRUE(status.ok()) << data_.c.ToString() << ": " << status.ToString();
    for (size_t t = 0; t < inputs_.size(); ++t) CheckTensor(t, work);
  }

 private:
  void AddTensor(size_t t) {
    const Case& c = data_.c;
    // A copy, because it may be overwritten; odd addresses are allowed, so they are used.
    in_.push_back(std::make_unique<Bytes>(data_.inputs[rank_][t]));
    Bytes& in = *in_.back();
    const Shape& shape = data_.shapes[rank_][t];
    inputs_.push_back({TensorView{in.data(), shape.count(), c.dtype, {}}, shape});
    if (c.output == Output::kAllocated) return;
    if (c.output == Output::kInPlace) {
      outputs_.push_back(inputs_.back().view);
      return;
    }
    const size_t bytes = data_.expected[rank_][t].size();
    out_.push_back(std::make_unique<Bytes>(bytes + 1, kFiller));
    outputs_.push_back(
        {out_.back()->data(), static_cast<int64_t>(bytes / DTypeSize(c.dtype)), c.dtype, {}});
  }

  void CheckTensor(size_t t, const Work& work) const {
    const Case& c = data_.c;
    const Bytes& expected = data_.expected[rank_][t];
    const TensorView out = allocates() ? work.output(static_cast<int>(t)) : outputs_[t];
    const size_t count = expected.size() / DTypeSize(c.dtype);
    ASSERT_EQ(out.count, static_cast<int64_t>(count)) << c.ToString() << ", tensor " << t;
    const size_t at = kernels::reference::FirstDifference(
        c.dtype, static_cast<const char*>(out.data), expected.data(), count);
    EXPECT_EQ(at, count) << c.ToString() << ", rank " << rank_ << ", tensor " << t
                         << ": wrong element";
    if (c.output == Output::kGiven) {
      EXPECT_EQ(out_[t]->back(), kFiller) << c.ToString() << ": wrote past the output's end";
    }
    if (c.output != Output::kInPlace) {
      EXPECT_EQ(*in_[t], data_.inputs[rank_][t]) << c.ToString() << ": the input was changed";
    }
  }

  LazyData* const lazy_;
  const CaseData& data_;
  const size_t rank_;
  const std::string name_;
  Request request_;
  std::vector<std::unique_ptr<Bytes>> in_, out_;
  std::vector<Tensor> inputs_;
  std::vector<TensorView> outputs_;
};

void RunOne(Runtime& runtime, LazyData* lazy, const std::string& name) {
  const bool submit = lazy->the_case().call == Call::kSubmit;
  const Attempt attempt(lazy, runtime.rank(), submit ? "" : name);
  if (submit) {
    Result<Work> work = runtime.Submit(attempt.request());
    ASSERT_TRUE(work.ok()) << work.status().ToString();
    attempt.Check(runtime.Wait(*work), *work);
    return;
  }
  Work work;
  const Status status = runtime.Run(attempt.request(), {}, attempt.allocates() ? &work : nullptr);
  attempt.Check(status, work);
}

// All named cases in flight at once, submitted and waited for in an order of this rank's own.
void RunShuffled(Runtime& runtime, const std::vector<std::pair<LazyData*, std::string>>& cases) {
  std::vector<size_t> order(cases.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::mt19937_64 random(static_cast<uint64_t>(runtime.rank()) + Seed());
  std::shuffle(order.begin(), order.end(), random);
  std::vector<std::unique_ptr<Attempt>> attempts(cases.size());
  std::vector<Work> works(cases.size());
  for (const size_t i : order) {
    attempts[i] = std::make_unique<Attempt>(cases[i].first, runtime.rank(), cases[i].second);
    Result<Work> work = runtime.Submit(attempts[i]->request());
    ASSERT_TRUE(work.ok()) << work.status().ToString();
    works[i] = *work;
  }
  std::shuffle(order.begin(), order.end(), random);
  for (const size_t i : order) attempts[i]->Check(runtime.Wait(works[i]), works[i]);
}

void RunAll(Runtime& runtime, const CaseList& list) {
  constexpr size_t kAtOnce = 32;
  std::vector<std::pair<LazyData*, std::string>> shuffled;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string name = fmt::format("case.{}", i);
    const Call call = list[i]->the_case().call;
    if (call == Call::kNamedShuffled) {
      shuffled.emplace_back(list[i].get(), name);
    } else {
      RunOne(runtime, list[i].get(), call == Call::kNamedRun ? name : "");
    }
    if (shuffled.size() == kAtOnce || i + 1 == list.size()) {
      RunShuffled(runtime, shuffled);
      shuffled.clear();
    }
    if (::testing::Test::HasFailure()) return;
  }
}

void RunJob(const BackendUnderTest& backend, const std::vector<Case>& cases, int ranks) {
  const CaseList list = WithRanks(cases, ranks, backend);
  ronde::testing::RunRankThreads(
      ranks, [&](Runtime& runtime) { RunAll(runtime, list); },
      [&](Config& config) { config.rules = backend.rules; });
}

}  // namespace

TEST_P(ConformanceTest, Grid) {
  const std::vector<Case> cases = Cases(GetParam());
  RecordProperty("cases", static_cast<int>(cases.size()));
  for (const int ranks : GetParam().rank_counts) RunJob(GetParam(), cases, ranks);
}

TEST_P(ConformanceTest, TwoJobsAtOnceInOneProcess) {
  const std::vector<Case> cases = PairwiseCover(GetParam(), Seed() + 1);
  std::thread other([&] { RunJob(GetParam(), cases, 3); });
  RunJob(GetParam(), cases, 2);
  other.join();
}

}  // namespace ronde::conformance
