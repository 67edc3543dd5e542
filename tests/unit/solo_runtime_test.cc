// A job of size 1, and the argument checks that every Runtime shares.
#include "core/runtime/solo_runtime.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>

#include "core/runtime/validate.h"

namespace ronde {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

template <typename T>
Tensor TensorOf(std::vector<T>* values, DType dtype, std::vector<int64_t> dims) {
  return {{values->data(), static_cast<int64_t>(values->size()), dtype, {}}, Shape::Of(dims)};
}

class SoloRuntimeTest : public testing::Test {
 protected:
  SoloRuntimeTest() : runtime_(std::move(SoloRuntime::Create(Config())).value()) {}

  // The text of the error with which `request` completes.
  std::string ErrorOf(const Request& request) {
    Result<Work> work = runtime_->Submit(request);
    if (!work.ok()) return "Submit: " + work.status().ToString();
    EXPECT_TRUE(work->done());
    return runtime_->Wait(*work).ToString();
  }

  const std::unique_ptr<Runtime> runtime_;
  std::vector<float> values_ = {1, -2, 3, 4, 5, 6};
  Tensor tensor_ = TensorOf(&values_, DType::kFloat32, {3, 2});
};

TEST_F(SoloRuntimeTest, EveryKindGivesTheInputBack) {
  const int64_t split = 3;
  for (int k = 0; k < kNumOpKinds - 1; ++k) {
    Request request;
    request.kind = static_cast<OpKind>(k);
    request.name = "x";
    request.inputs = {&tensor_, 1};
    request.op = ReduceOp::kAverage;
    if (request.kind == OpKind::kAlltoall) request.splits = {&split, 1};
    Work work;
    ASSERT_TRUE(runtime_->Run(request, {}, &work).ok()) << OpKindName(request.kind);
    const TensorView output = work.output();
    const float* data = static_cast<const float*>(output.data);
    EXPECT_EQ(std::vector<float>(data, data + output.count), values_);
    EXPECT_EQ(work.output_shape(), tensor_.shape);
    EXPECT_NE(data, values_.data());
    EXPECT_NE(work.output_memory(), nullptr);
    if (request.kind == OpKind::kAlltoall) {
      EXPECT_THAT(work.received_splits(), ElementsAre(3));
    }
  }
  EXPECT_EQ(runtime_->stats().works, kNumOpKinds - 1);
  EXPECT_EQ(runtime_->stats().bytes, (kNumOpKinds - 1) * 24);
}

TEST_F(SoloRuntimeTest, BarrierRunsItsCallback) {
  Request request;
  request.kind = OpKind::kBarrier;
  int calls = 0;
  ASSERT_TRUE(runtime_->Submit(request, [&](const Status& status) { calls += status.ok(); }).ok());
  EXPECT_EQ(calls, 1);
}

TEST_F(SoloRuntimeTest, ScalesInPlace) {
  Request request;
  request.inputs = {&tensor_, 1};
  request.outputs = {&tensor_.view, 1};
  request.prescale = 2;
  request.postscale = 0.5;
  ASSERT_TRUE(runtime_->Run(request).ok());
  EXPECT_THAT(values_, ElementsAre(1, -2, 3, 4, 5, 6));
  request.postscale = -1;
  ASSERT_TRUE(runtime_->Run(request).ok());
  EXPECT_THAT(values_, ElementsAre(-2, 4, -6, -8, -10, -12));
}

TEST_F(SoloRuntimeTest, WrongArgumentsNameThingValueAndAllowed) {
  Request request;
  request.name = "fc";
  request.inputs = {&tensor_, 1};
  request.prescale = std::numeric_limits<double>::infinity();
  EXPECT_EQ(ErrorOf(request),
            "InvalidArgument: allreduce 'fc': prescale factor is inf; must be finite");

  request.prescale = 1;
  request.kind = OpKind::kBroadcast;
  request.root = 1;
  EXPECT_EQ(ErrorOf(request), "InvalidArgument: broadcast 'fc': root is 1; must be 0 to 0");

  request.kind = OpKind::kAlltoall;
  const std::vector<int64_t> two = {1, 2};
  request.splits = two;
  EXPECT_THAT(ErrorOf(request), HasSubstr("splits has 2 values; must have one for each of the 1"));
  const std::vector<int64_t> negative = {-1};
  request.splits = negative;
  EXPECT_THAT(ErrorOf(request), HasSubstr("splits[0] is -1; must be 0 to 3"));
  const std::vector<int64_t> short_one = {2};
  request.splits = short_one;
  EXPECT_THAT(ErrorOf(request), HasSubstr("splits [2] add up to 2; must add up to 3"));

  Request unknown = request;
  unknown.kind = static_cast<OpKind>(9);
  EXPECT_EQ(ErrorOf(unknown), "InvalidArgument: operation kind 9; must be 0 to 5");
  unknown.kind = OpKind::kAllreduce;
  unknown.op = static_cast<ReduceOp>(9);
  EXPECT_THAT(ErrorOf(unknown), HasSubstr("operator number 9; must be 0 to 4"));
  Tensor odd = tensor_;
  odd.view.dtype = static_cast<DType>(77);
  unknown.op = ReduceOp::kSum;
  unknown.inputs = {&odd, 1};
  EXPECT_THAT(ErrorOf(unknown), HasSubstr("input 0 has dtype number 77; must be 0 to 9"));
  SetSpec spec{"set", {{"t", tensor_.shape, DType::kFloat32}}, static_cast<ReduceOp>(9)};
  EXPECT_EQ(runtime_->DeclareSet(spec).status().code(), Code::kInvalidArgument);

  Request invalid;
  invalid.invalid = Status::Unsupported("sparse");
  EXPECT_EQ(ErrorOf(invalid), "Unsupported: sparse");
}

TEST_F(SoloRuntimeTest, WrongShapesAndOutputs) {
  Request request;
  Tensor tensor = tensor_;
  request.inputs = {&tensor, 1};
  tensor.shape = Shape::Of(std::vector<int64_t>{3, -2});
  EXPECT_THAT(ErrorOf(request), AllOf(HasSubstr("[3,-2]"), HasSubstr("must be >= 0")));
  tensor.shape = Shape::Of(std::vector<int64_t>{int64_t{1} << 40, int64_t{1} << 40});
  EXPECT_THAT(ErrorOf(request), HasSubstr("fit in memory"));
  tensor.shape = Shape::Of(std::vector<int64_t>{5});
  EXPECT_THAT(ErrorOf(request), HasSubstr("has 6 elements, but shape [5] needs 5"));
  tensor = tensor_;
  tensor.view.data = nullptr;
  EXPECT_THAT(ErrorOf(request), HasSubstr("null pointer with 6 elements"));
  tensor = tensor_;
  tensor.view.device = {DeviceType::kCuda, 1};
  EXPECT_THAT(ErrorOf(request), AllOf(HasSubstr("Unsupported"), HasSubstr("cuda:1")));

  tensor = tensor_;
  TensorView output = tensor_.view;
  request.outputs = {&output, 1};
  output.count = 5;
  EXPECT_THAT(ErrorOf(request), HasSubstr("output 0 has 5 elements; must have 6"));
  output = tensor_.view;
  output.dtype = DType::kInt32;
  EXPECT_THAT(ErrorOf(request), HasSubstr("output 0 is int32, but input 0 is float32"));
  std::vector<float> buffer(8);
  tensor.view.data = buffer.data();
  output = tensor_.view;
  output.data = buffer.data() + 1;
  EXPECT_THAT(ErrorOf(request), HasSubstr("overlaps input 0; allowed: the same memory or none"));
}

TEST_F(SoloRuntimeTest, LongNamesAreRefusedBySubmit) {
  const std::string longest(kMaxNameBytes, 'n');
  Request request;
  request.inputs = {&tensor_, 1};
  request.name = longest;
  EXPECT_TRUE(runtime_->Run(request).ok());
  const std::string longer = longest + "n";
  request.name = longer;
  EXPECT_THAT(ErrorOf(request), AllOf(HasSubstr("Submit: InvalidArgument"), HasSubstr("1024")));
}

TEST(ValidateTest, SeesWhatASingleRankCanSee) {
  std::vector<float> values(6);
  Tensor tensor = TensorOf(&values, DType::kFloat32, {3, 2});
  Request request;
  request.inputs = {&tensor, 1};
  request.kind = OpKind::kAlltoall;
  EXPECT_TRUE(ValidateRequest(request, 0, 3).ok());
  EXPECT_THAT(ValidateRequest(request, 0, 2).ToString(), HasSubstr("3 rows, which 2 ranks"));

  // Rank 0 of 2 takes two of three rows, rank 1 one.
  request.kind = OpKind::kReducescatter;
  std::vector<float> result(4);
  TensorView output = {result.data(), 4, DType::kFloat32, {}};
  request.outputs = {&output, 1};
  EXPECT_TRUE(ValidateRequest(request, 0, 2).ok());
  EXPECT_THAT(ValidateRequest(request, 1, 2).ToString(), HasSubstr("must have 2"));

  tensor.shape = Shape();
  tensor.view.count = 1;
  EXPECT_THAT(ValidateRequest(request, 1, 2).ToString(), HasSubstr("is a scalar"));

  std::vector<char> bools(1);
  Tensor truth = TensorOf(&bools, DType::kBool, {1});
  Request average;
  average.inputs = {&truth, 1};
  average.op = ReduceOp::kAverage;
  EXPECT_THAT(ValidateRequest(average, 0, 2).ToString(), HasSubstr("average of bool"));
}

// Only allreduce and broadcast work in place, and then wholly.
TEST(ValidateTest, OutputsThatOverlapInputs) {
  std::vector<float> values(16);
  std::vector<float> input_values(4);
  for (int k = 0; k <= static_cast<int>(OpKind::kAlltoall); ++k) {
    Request request;
    request.kind = static_cast<OpKind>(k);
    const bool in_place = request.kind == OpKind::kAllreduce || request.kind == OpKind::kBroadcast;
    const int64_t count = request.kind == OpKind::kAllgather       ? 8
                          : request.kind == OpKind::kReducescatter ? 2
                                                                   : 4;
    Tensor tensor = TensorOf(&input_values, DType::kFloat32, {4});
    TensorView output = {values.data() + 4, count, DType::kFloat32, {}};
    request.inputs = {&tensor, 1};
    request.outputs = {&output, 1};
    const auto code_at = [&](int64_t offset) {
      tensor.view.data = values.data() + 4 + offset;
      return ValidateRequest(request, 0, 2).code();
    };
    EXPECT_EQ(code_at(0), in_place ? Code::kOk : Code::kInvalidArgument) << k;
    EXPECT_EQ(code_at(1), Code::kInvalidArgument) << k;
    EXPECT_EQ(code_at(-3), Code::kInvalidArgument) << k;
    EXPECT_EQ(code_at(-4), Code::kOk) << k;
    EXPECT_EQ(code_at(count), Code::kOk) << k;
  }
}

TEST(ValidateTest, EqualPartsOfAGroupAreThoseOfEachTensor) {
  std::vector<float> four(4), pairs(4), three(3);
  std::array<Tensor, 2> tensors = {TensorOf(&four, DType::kFloat32, {4}),
                                   TensorOf(&pairs, DType::kFloat32, {2, 2})};
  Request request;
  request.kind = OpKind::kAlltoall;
  request.inputs = tensors;
  EXPECT_TRUE(ValidateRequest(request, 0, 2).ok()) << ValidateRequest(request, 0, 2).ToString();
  tensors[1] = TensorOf(&three, DType::kFloat32, {3});
  EXPECT_THAT(ValidateRequest(request, 0, 2).ToString(),
              HasSubstr("input 1 has 3 rows, which 2 ranks cannot share equally"));
}

SetSpec TwoTensors() {
  SetSpec spec;
  spec.name = "grads";
  spec.tensors = {{"a", Shape::Of(std::vector<int64_t>{3}), DType::kFloat32},
                  {"b", Shape::Of(std::vector<int64_t>{2}), DType::kFloat32}};
  return spec;
}

TEST_F(SoloRuntimeTest, ASetScalesWhatWasMarked) {
  SetSpec spec = TwoTensors();
  spec.prescale = 2;
  const std::unique_ptr<Set> set = std::move(runtime_->DeclareSet(spec)).value();
  for (int t = 0; t < 2; ++t) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(set->slot(t).data) % 64, 0u);
    for (int64_t i = 0; i < set->slot(t).count; ++i) static_cast<float*>(set->slot(t).data)[i] = 1;
  }
  EXPECT_FALSE(set->round_open());
  ASSERT_TRUE(set->Mark(0).ok());
  EXPECT_TRUE(set->round_open());
  EXPECT_THAT(set->Mark(0).ToString(), HasSubstr("tensor 'a' was marked already in round 0"));
  EXPECT_THAT(set->Mark(2).ToString(), HasSubstr("tensor 2 does not exist; allowed: 0 to 1"));
  ASSERT_TRUE(set->Close().ok());
  ASSERT_TRUE(set->Wait().ok());
  EXPECT_EQ(set->round(), 1);
  EXPECT_EQ(set->contributors(0), 1);
  EXPECT_EQ(set->contributors(1), 0);
  EXPECT_EQ(static_cast<float*>(set->slot(0).data)[2], 2);
  EXPECT_EQ(static_cast<float*>(set->slot(1).data)[1], 1);

  ASSERT_TRUE(set->Poison(1, "shape [7]").ok());
  ASSERT_TRUE(set->Close().ok());
  EXPECT_THAT(set->tensor_status(1).ToString(),
              AllOf(HasSubstr("Mismatch"), HasSubstr("'b'"), HasSubstr("shape [7]")));
  EXPECT_EQ(set->contributors(0), 0);
}

TEST_F(SoloRuntimeTest, SetNamesAreUniqueWhileTheyLive) {
  std::unique_ptr<Set> set = std::move(runtime_->DeclareSet(TwoTensors())).value();
  EXPECT_THAT(runtime_->DeclareSet(TwoTensors()).status().ToString(),
              HasSubstr("declared already"));
  set.reset();
  EXPECT_TRUE(runtime_->DeclareSet(TwoTensors()).ok());

  SetSpec twice = TwoTensors();
  twice.tensors[1].name = "a";
  EXPECT_THAT(runtime_->DeclareSet(twice).status().ToString(), HasSubstr("'a' appears twice"));
}

TEST_F(SoloRuntimeTest, EndsWithShutdownAndInAForkedChild) {
  Request request;
  request.inputs = {&tensor_, 1};
  const pid_t child = fork();
  if (child == 0) {
    const Result<Work> work = runtime_->Submit(request);
    _exit(work.status().code() == Code::kNotInitialized ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);

  Work work;
  EXPECT_EQ(runtime_->Wait(work).code(), Code::kInvalidArgument);
  EXPECT_TRUE(runtime_->Poll(work));
  ASSERT_TRUE(runtime_->Run(request, {}, &work).ok());
  runtime_->Shutdown();
  EXPECT_EQ(runtime_->Submit(request).status().code(), Code::kNotInitialized);
  EXPECT_EQ(work.output().count, 6);  // results outlive it
}

}  // namespace
}  // namespace ronde
