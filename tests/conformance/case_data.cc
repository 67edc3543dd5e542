#include "tests/conformance/case_data.h"

#include <cstring>
#include <numeric>
#include <random>

namespace ronde::conformance {
namespace {

using kernels::reference::Encode16;
using kernels::reference::RandomElements;

void Append(Bytes& to, const Bytes& from) {
  to.insert(to.end(), from.begin(), from.end());
}

template <class T>
void Put(Bytes& bytes, size_t i, T value) {
  std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
}

// Numbers so small that their sums and products over 8 ranks are exact in every dtype.
int SmallNumber(ReduceOp op, size_t i, uint64_t salt) {
  const uint64_t mixed = (i * 2654435761u + salt) >> 7;
  return op == ReduceOp::kProduct ? 1 + static_cast<int>(mixed % 2) : static_cast<int>(mixed % 5);
}

Bytes SmallNumbers(DType dtype, ReduceOp op, size_t count, uint64_t salt) {
  Bytes bytes(count * DTypeSize(dtype));
  for (size_t i = 0; i < count; ++i) {
    const int value = SmallNumber(op, i, salt);
    switch (dtype) {
      case DType::kBool:
        Put(bytes, i, static_cast<int8_t>(value % 2));
        break;
      case DType::kUint8:
      case DType::kInt8:
        Put(bytes, i, static_cast<int8_t>(value));
        break;
      case DType::kInt16:
        Put(bytes, i, static_cast<int16_t>(value));
        break;
      case DType::kInt32:
        Put(bytes, i, static_cast<int32_t>(value));
        break;
      case DType::kInt64:
        Put(bytes, i, static_cast<int64_t>(value));
        break;
      case DType::kFloat16:
        Put(bytes, i, Encode16(static_cast<float>(value), 10, -14));
        break;
      case DType::kBfloat16:
        Put(bytes, i, Encode16(static_cast<float>(value), 7, -126));
        break;
      case DType::kFloat32:
        Put(bytes, i, static_cast<float>(value));
        break;
      case DType::kFloat64:
        Put(bytes, i, static_cast<double>(value));
        break;
    }
  }
  return bytes;
}

bool OwnRows(OpKind kind) {
  return kind == OpKind::kAllgather || kind == OpKind::kAlltoall;
}

// Vectors when small, matrices when larger; rows differ by rank where they may.
Shape ShapeOf(const Case& c, int64_t count, int rank, int64_t rows_sent) {
  const int64_t inner = count >= 37 ? 3 : 1;
  if (c.kind == OpKind::kAllreduce || c.kind == OpKind::kBroadcast) {
    return Shape::Of(std::vector<int64_t>{count});
  }
  int64_t rows = count / inner;
  if (c.kind == OpKind::kAllgather && count > 0) rows += rank % 3;
  if (c.kind == OpKind::kAlltoall) rows = rows_sent;
  return Shape::Of(std::vector<int64_t>{rows, inner});
}

}  // namespace

CaseData::CaseData(const Case& the_case, const BackendUnderTest& backend, uint64_t seed)
    : c(the_case) {
  root = static_cast<int>(seed % static_cast<uint64_t>(c.ranks));
  if (c.kind != OpKind::kBarrier) MakeInputs(CountOf(c, backend), seed);
  Expect();
}

void CaseData::MakeInputs(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (int r = 0; r < c.ranks; ++r) {
    shapes.emplace_back();
    inputs.emplace_back();
    splits.emplace_back();
    for (int to = 0; to < c.ranks; ++to) {
      const int64_t share = count / (count >= 37 ? 3 : 1) / c.ranks;
      splits.back().push_back(count == 0 ? 0 : share + (r + 2 * to) % 3);
    }
    const int64_t sent = std::accumulate(splits.back().begin(), splits.back().end(), int64_t{0});
    for (int t = 0; t < c.tensors; ++t) {
      const int64_t tensor_count = t == 0 ? count : t == 1 ? count / 2 : 5;
      const Shape shape = ShapeOf(c, tensor_count, r, sent);
      const auto elements = static_cast<size_t>(shape.count());
      shapes.back().push_back(shape);
      inputs.back().push_back(c.data == Data::kExact
                                  ? SmallNumbers(c.dtype, c.op, elements, random())
                                  : RandomElements(c.dtype, elements, random));
    }
  }
}

// Rows [first, first + rows) of a tensor.
Bytes CaseData::Rows(int rank, size_t tensor, int64_t first, int64_t rows) const {
  const auto r = static_cast<size_t>(rank);
  const int64_t row_bytes =
      shapes[r][tensor].row_count() * static_cast<int64_t>(DTypeSize(c.dtype));
  const auto begin = inputs[r][tensor].begin() + first * row_bytes;
  return Bytes(begin, begin + rows * row_bytes);
}

Bytes CaseData::Reduced(size_t tensor) const {
  std::vector<Bytes> srcs;
  for (const auto& of_rank : inputs) srcs.push_back(of_rank[tensor]);
  return kernels::reference::Reduce(c.dtype, c.op, srcs,
                                    static_cast<size_t>(shapes[0][tensor].count()),
                                    {c.prescale(), c.postscale(), c.ranks});
}

void CaseData::Expect() {
  expected.resize(static_cast<size_t>(c.ranks));
  if (c.kind == OpKind::kBarrier) return;
  const int n = c.ranks;
  for (size_t t = 0; t < static_cast<size_t>(c.tensors); ++t) {
    const bool reduces = c.kind == OpKind::kAllreduce || c.kind == OpKind::kReducescatter;
    const Bytes reduced = reduces ? Reduced(t) : Bytes();
    int64_t row = 0;
    for (int r = 0; r < n; ++r) {
      Bytes& out = expected[static_cast<size_t>(r)].emplace_back();
      if (c.kind == OpKind::kAllreduce) out = reduced;
      if (c.kind == OpKind::kBroadcast) out = inputs[static_cast<size_t>(root)][t];
      if (c.kind == OpKind::kReducescatter) {
        const Shape& shape = shapes[0][t];
        const int64_t rows = shape.dims[0] / n + (r < shape.dims[0] % n ? 1 : 0);
        const int64_t bytes = shape.row_count() * static_cast<int64_t>(DTypeSize(c.dtype));
        out.assign(reduced.begin() + row * bytes, reduced.begin() + (row + rows) * bytes);
        row += rows;
      }
      if (!OwnRows(c.kind)) continue;
      for (int from = 0; from < n; ++from) {
        const auto f = static_cast<size_t>(from);
        if (c.kind == OpKind::kAllgather) {
          Append(out, inputs[f][t]);
          continue;
        }
        const auto to_me = splits[f].begin() + r;
        Append(out, Rows(from, t, std::accumulate(splits[f].begin(), to_me, int64_t{0}), *to_me));
      }
    }
  }
}

}  // namespace ronde::conformance
