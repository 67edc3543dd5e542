// Short ways to say what a test asks of a Runtime.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ronde/runtime.h"

namespace ronde::testing {

// A request together with the memory it speaks of. Not movable: the request points into it.
class Call {
 public:
  explicit Call(OpKind kind, std::string name = "") : name_(std::move(name)) {
    request_.kind = kind;
    request_.name = name_;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // An allreduce of `count` elements of value `value`, in place.
  static Call Allreduce(std::string name, int64_t count = 4, float value = 1) {
    return Call(std::move(name), count, value);
  }

  // One more tensor, zero-initialised or of `value`; reduced in place where that exists.
  Call& Add(std::vector<int64_t> dims, DType dtype = DType::kFloat32, float value = 0) {
    const Shape shape = Shape::Of(dims);
    const auto bytes = static_cast<size_t>(shape.count()) * DTypeSize(dtype);
    memory_.push_back(std::vector<float>(bytes / sizeof(float) + 1, value));
    tensors_.push_back({TensorView{memory_.back().data(), shape.count(), dtype, {}}, shape});
    outputs_.clear();
    const bool in_place =
        request_.kind == OpKind::kAllreduce || request_.kind == OpKind::kBroadcast;
    for (const Tensor& tensor : tensors_) {
      if (in_place) outputs_.push_back(tensor.view);
    }
    request_.inputs = tensors_;
    request_.outputs = outputs_;
    return *this;
  }
  Call& Splits(std::vector<int64_t> splits) {
    splits_ = std::move(splits);
    request_.splits = splits_;
    return *this;
  }

  Request* operator->() { return &request_; }
  const Request& operator*() const { return request_; }
  const std::vector<float>& values(size_t tensor = 0) const { return memory_[tensor]; }
  float value() const { return memory_[0][0]; }

 private:
  Call(std::string name, int64_t count, float value) : Call(OpKind::kAllreduce, std::move(name)) {
    Add({count}, DType::kFloat32, value);
  }

  const std::string name_;
  std::vector<std::vector<float>> memory_;
  std::vector<Tensor> tensors_;
  std::vector<TensorView> outputs_;
  std::vector<int64_t> splits_;
  Request request_;
};

// Does the job still work? An allreduce of ones, named or not.
inline Status TryAllreduce(Runtime& runtime, std::string name = "") {
  Call call = Call::Allreduce(std::move(name));
  RONDE_RETURN_IF_ERROR(runtime.Run(*call));
  if (call.value() != static_cast<float>(runtime.size())) return Status::Internal("a wrong sum");
  return Status::Ok();
}

}  // namespace ronde::testing
