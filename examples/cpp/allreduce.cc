// Ronde from C++: every rank contributes a vector, every rank gets the sum.
//
//   ronde run -n 4 build/release/examples/example_allreduce
//
// In a project of your own: see the README for the compiler's options.
#include <cstdio>
#include <vector>

#include "ronde/runtime.h"

int main() {
  // The launcher says who we are in the environment; without it this is a job of one rank.
  const ronde::Result<ronde::Config> config = ronde::Config::FromEnvironment();
  if (!config.ok()) {
    std::fprintf(stderr, "%s\n", config.status().ToString().c_str());
    return 1;
  }
  ronde::Result<std::unique_ptr<ronde::Runtime>> opened = ronde::Open(*config);
  if (!opened.ok()) {
    std::fprintf(stderr, "%s\n", opened.status().ToString().c_str());
    return 1;
  }
  ronde::Runtime& runtime = **opened;

  // Rank r contributes r + 1 in every element.
  std::vector<float> values(1000, static_cast<float>(runtime.rank() + 1));
  const std::vector<int64_t> shape = {static_cast<int64_t>(values.size())};
  const ronde::Tensor tensor = {{values.data(), shape[0], ronde::DType::kFloat32, {}},
                                ronde::Shape::Of(shape)};

  ronde::Request request;
  request.kind = ronde::OpKind::kAllreduce;
  request.op = ronde::ReduceOp::kSum;
  request.inputs = {&tensor, 1};
  request.outputs = {&tensor.view, 1};  // in place
  // Blocks until every rank has contributed. Submit and Wait do the same in two steps, so that you
  // can compute in between.
  const ronde::Status status = runtime.Run(request);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 1;
  }

  const int n = runtime.size();
  std::printf("rank %d of %d: sum is %g, expected %d\n", runtime.rank(), n, values[0],
              n * (n + 1) / 2);
  return values[0] == static_cast<float>(n * (n + 1) / 2) ? 0 : 1;
}
