#include "ronde/dtype.h"

#include <array>

namespace ronde {
namespace {

constexpr std::array<std::string_view, kNumDTypes> kDTypeNames = {
    "bool",  "uint8",   "int8",     "int16",   "int32",
    "int64", "float16", "bfloat16", "float32", "float64"};
constexpr std::array<std::string_view, kNumReduceOps> kReduceOpNames = {"sum", "average", "min",
                                                                        "max", "product"};

}  // namespace

std::string_view DTypeName(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  return index < kDTypeNames.size() ? kDTypeNames[index] : "invalid";
}

std::string_view ReduceOpName(ReduceOp op) {
  const auto index = static_cast<size_t>(op);
  return index < kReduceOpNames.size() ? kReduceOpNames[index] : "invalid";
}

std::optional<DType> ParseDType(std::string_view name) {
  for (size_t i = 0; i < kDTypeNames.size(); ++i) {
    if (kDTypeNames[i] == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::optional<ReduceOp> ParseReduceOp(std::string_view name) {
  for (size_t i = 0; i < kReduceOpNames.size(); ++i) {
    if (kReduceOpNames[i] == name) return static_cast<ReduceOp>(i);
  }
  return std::nullopt;
}

}  // namespace ronde
