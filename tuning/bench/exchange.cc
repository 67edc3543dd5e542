#include "tuning/bench/exchange.h"

#include <cstring>

namespace ronde::bench {
namespace {

Tensor Values(const int64_t* data, size_t count) {
  const int64_t dims[] = {static_cast<int64_t>(count)};
  Tensor tensor;
  tensor.shape = Shape::Of(dims);
  tensor.view = {const_cast<int64_t*>(data), dims[0], DType::kInt64, {}};
  return tensor;
}

}  // namespace

Status Exchange::Broadcast(std::span<int64_t> values) {
  const Tensor tensor = Values(values.data(), values.size());
  Request request;
  request.kind = OpKind::kBroadcast;
  request.inputs = {&tensor, 1};
  request.outputs = {&tensor.view, 1};
  return runtime_->Run(request);
}

Result<std::vector<std::vector<int64_t>>> Exchange::Gather(std::span<const int64_t> values) {
  const auto ranks = static_cast<size_t>(runtime_->size());
  std::vector<int64_t> all(values.size() * ranks);
  const Tensor tensor = Values(values.data(), values.size());
  const TensorView output = Values(all.data(), all.size()).view;
  Request request;
  request.kind = OpKind::kAllgather;
  request.inputs = {&tensor, 1};
  request.outputs = {&output, 1};
  RONDE_RETURN_IF_ERROR(runtime_->Run(request));
  std::vector<std::vector<int64_t>> by_rank;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const auto begin = all.begin() + static_cast<ptrdiff_t>(rank * values.size());
    by_rank.emplace_back(begin, begin + static_cast<ptrdiff_t>(values.size()));
  }
  return by_rank;
}

Result<int64_t> Exchange::Sum(int64_t value) {
  const Tensor tensor = Values(&value, 1);
  Request request;
  request.inputs = {&tensor, 1};
  request.outputs = {&tensor.view, 1};
  RONDE_RETURN_IF_ERROR(runtime_->Run(request));
  return value;
}

Result<std::string> Exchange::BroadcastText(const std::string& text) {
  int64_t words[32] = {};
  std::strncpy(reinterpret_cast<char*>(words), text.c_str(), sizeof words - 1);
  RONDE_RETURN_IF_ERROR(Broadcast(words));
  return std::string(reinterpret_cast<const char*>(words));
}

}  // namespace ronde::bench
