#include "core/control/description.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <type_traits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/control/board.h"
#include "core/control/messages.pb.h"

namespace ronde {
namespace {

struct EncodedTensor {
  uint8_t dtype;
  uint8_t ndim;
  int64_t dims[Shape::kMaxDims];
};

struct Encoded {
  uint8_t kind;
  uint8_t op;
  uint16_t invalid_bytes;
  int32_t root;
  double prescale;
  double postscale;
  uint32_t num_tensors;  // described here, maybe more than are written
  uint32_t group_size;
  uint32_t num_splits;
  // followed by EncodedTensor[min(num_tensors, kMaxDescribedTensors)], int64_t splits[num_splits],
  // text
};
constexpr size_t kMaxInvalidBytes = 768;
static_assert(sizeof(Encoded) + kMaxDescribedTensors * sizeof(EncodedTensor) +
                  kMaxLocalRanks * sizeof(int64_t) + kMaxInvalidBytes <=
              kDescriptorBytes);

size_t TensorsWritten(size_t num_tensors) {
  return std::min(num_tensors, kMaxDescribedTensors);
}
size_t TensorOffset(size_t i) {
  return sizeof(Encoded) + i * sizeof(EncodedTensor);
}

template <typename T>
T Load(const std::byte* in, size_t offset) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, in + offset, sizeof(T));
  return value;
}

// Does dimension 0 belong to the rank alone?
bool FirstDimensionIsOwn(OpKind kind) {
  return kind == OpKind::kAllgather || kind == OpKind::kAlltoall;
}

uint64_t Mix(uint64_t hash, uint64_t value) {
  // Multiply-xorshift as in MurmurHash3's finaliser; quality matters little, speed does.
  hash = (hash ^ value) * 0xff51afd7ed558ccd;
  return hash ^ (hash >> 32);
}

uint64_t Bits(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

std::string ShapeText(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.span(), ","));
}

Shape ShapeOf(const EncodedTensor& tensor) {
  const int ndim = std::min<int>(tensor.ndim, Shape::kMaxDims);
  return Shape::Of({tensor.dims, static_cast<size_t>(ndim)});
}

// Groups ranks by what they say. Empty when all say the same; otherwise "rank 3 sent X, ranks 0-2
// sent Y", the odd ones first.
std::string Differences(std::span<const Description> by_rank,
                        const std::function<std::string(const Description&)>& say) {
  std::map<std::string, std::vector<int>> groups;
  for (size_t r = 0; r < by_rank.size(); ++r)
    groups[say(by_rank[r])].push_back(static_cast<int>(r));
  if (groups.size() <= 1) return "";
  std::vector<std::pair<std::string, std::vector<int>>> sorted(groups.begin(), groups.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    if (a.second.size() != b.second.size()) return a.second.size() < b.second.size();
    return a.second > b.second;
  });
  std::vector<std::string> parts;
  for (const auto& [text, ranks] : sorted) {
    parts.push_back(fmt::format("{} sent {}", RankList(ranks), text));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string TensorText(const Description& description, size_t i) {
  const TensorDescription& tensor = description.tensors[i];
  Shape shape = tensor.shape;
  std::string text = tensor.name.empty() ? "" : fmt::format("'{}' ", tensor.name);
  text += DTypeName(tensor.dtype);
  if (!FirstDimensionIsOwn(description.kind) || shape.ndim == 0)
    return text + " " + ShapeText(shape);
  // Only the inner dimensions must agree.
  return fmt::format("{} [*{}{}]", text, shape.ndim > 1 ? "," : "",
                     fmt::join(shape.span().subspan(1), ","));
}

bool Reduces(OpKind kind) {
  return kind == OpKind::kAllreduce || kind == OpKind::kReducescatter;
}

}  // namespace

uint64_t Signature(const OpView& op) {
  if (!op.invalid.empty()) return 0;
  uint64_t hash = Mix(0x9e3779b97f4a7c15,
                      static_cast<uint64_t>(op.kind) | static_cast<uint64_t>(op.group_size) << 8);
  if (Reduces(op.kind)) {
    hash = Mix(hash, static_cast<uint64_t>(op.op));
    if (op.prescale != 1.0 || op.postscale != 1.0) {
      hash = Mix(Mix(hash, Bits(op.prescale)), Bits(op.postscale));
    }
  }
  if (op.kind == OpKind::kBroadcast) hash = Mix(hash, static_cast<uint64_t>(op.root) + 1);
  const int first = FirstDimensionIsOwn(op.kind) ? 1 : 0;
  for (const Tensor& tensor : op.tensors) {
    hash = Mix(hash, static_cast<uint64_t>(tensor.view.dtype) |
                         static_cast<uint64_t>(tensor.shape.ndim) << 8);
    for (int d = first; d < tensor.shape.ndim; ++d) {
      hash = Mix(hash, static_cast<uint64_t>(tensor.shape.dims[static_cast<size_t>(d)]));
    }
  }
  return hash | 1;
}

void EncodeDescription(const OpView& op, std::byte* out) {
  // Every field goes straight to its place: a copy made first would be read back before its stores
  // have left the core, behind a payload whose line is still on its way.
  const auto num_splits = std::min<size_t>(op.splits.size(), kMaxLocalRanks);
  const size_t invalid_bytes = std::min(op.invalid.size(), kMaxInvalidBytes);
  auto* head = reinterpret_cast<Encoded*>(out);
  head->kind = static_cast<uint8_t>(op.kind);
  head->op = static_cast<uint8_t>(op.op);
  head->invalid_bytes = static_cast<uint16_t>(invalid_bytes);
  head->root = op.root;
  head->prescale = op.prescale;
  head->postscale = op.postscale;
  head->num_tensors = static_cast<uint32_t>(op.tensors.size());
  head->group_size = static_cast<uint32_t>(op.group_size);
  head->num_splits = static_cast<uint32_t>(num_splits);
  const size_t written = TensorsWritten(op.tensors.size());
  for (size_t i = 0; i < written; ++i) {
    auto* tensor = reinterpret_cast<EncodedTensor*>(out + TensorOffset(i));
    tensor->dtype = static_cast<uint8_t>(op.tensors[i].view.dtype);
    tensor->ndim = static_cast<uint8_t>(op.tensors[i].shape.ndim);
    std::memcpy(tensor->dims, op.tensors[i].shape.dims.data(), sizeof(tensor->dims));
  }
  std::byte* tail = out + TensorOffset(written);
  if (num_splits != 0) std::memcpy(tail, op.splits.data(), num_splits * sizeof(int64_t));
  if (invalid_bytes != 0) {
    std::memcpy(tail + num_splits * sizeof(int64_t), op.invalid.data(), invalid_bytes);
  }
}

Description DecodeDescription(const std::byte* in) {
  const auto head = Load<Encoded>(in, 0);
  Description out;
  out.kind = static_cast<OpKind>(std::min<int>(head.kind, kNumOpKinds - 1));
  out.op = static_cast<ReduceOp>(head.op);
  out.root = head.root;
  out.prescale = head.prescale;
  out.postscale = head.postscale;
  out.group_size = head.group_size;
  const size_t written = TensorsWritten(head.num_tensors);
  for (size_t i = 0; i < written; ++i) {
    const auto tensor = Load<EncodedTensor>(in, TensorOffset(i));
    out.tensors.push_back({"", static_cast<DType>(tensor.dtype), ShapeOf(tensor)});
  }
  const size_t num_splits = std::min<size_t>(head.num_splits, kMaxLocalRanks);
  for (size_t i = 0; i < num_splits; ++i) out.splits.push_back(EncodedSplit(in, i));
  const size_t text = TensorOffset(written) + num_splits * sizeof(int64_t);
  const size_t bytes = std::min<size_t>(head.invalid_bytes, kMaxInvalidBytes);
  out.invalid.assign(reinterpret_cast<const char*>(in + text), bytes);
  return out;
}

Shape EncodedShape(const std::byte* in, size_t i) {
  return ShapeOf(Load<EncodedTensor>(in, TensorOffset(i)));
}

int64_t EncodedSplit(const std::byte* in, size_t i) {
  const auto head = Load<Encoded>(in, 0);
  return Load<int64_t>(in, TensorOffset(TensorsWritten(head.num_tensors)) + i * sizeof(int64_t));
}

Description ToDescription(const OpView& op) {
  Description out;
  out.kind = op.kind;
  out.op = op.op;
  out.root = op.root;
  out.prescale = op.prescale;
  out.postscale = op.postscale;
  out.group_size = op.group_size;
  for (const Tensor& tensor : op.tensors)
    out.tensors.push_back({"", tensor.view.dtype, tensor.shape});
  out.splits.assign(op.splits.begin(), op.splits.end());
  out.invalid.assign(op.invalid);
  return out;
}

void ToWire(const Description& description, wire::Descriptor* out) {
  out->set_kind(static_cast<uint32_t>(description.kind));
  out->set_op(static_cast<uint32_t>(description.op));
  out->set_root(description.root);
  out->set_prescale(description.prescale);
  out->set_postscale(description.postscale);
  out->set_invalid(description.invalid);
  out->set_bucket_bytes(static_cast<uint64_t>(description.bucket_bytes));
  for (const TensorDescription& tensor : description.tensors) {
    wire::Tensor* wire_tensor = out->add_tensors();
    wire_tensor->set_dtype(static_cast<uint32_t>(tensor.dtype));
    wire_tensor->set_name(tensor.name);
    for (const int64_t dim : tensor.shape.span()) wire_tensor->add_dims(dim);
  }
}

Result<Description> FromWire(const wire::Descriptor& in) {
  Description out;
  if (in.kind() >= kNumOpKinds || in.op() >= kNumReduceOps) {
    return Status::Internal(
        fmt::format("a descriptor with kind {} and operator {}", in.kind(), in.op()));
  }
  out.kind = static_cast<OpKind>(in.kind());
  out.op = static_cast<ReduceOp>(in.op());
  out.root = in.root();
  out.prescale = in.prescale();
  out.postscale = in.postscale();
  out.invalid = in.invalid();
  out.bucket_bytes = static_cast<int64_t>(in.bucket_bytes());
  out.group_size = static_cast<size_t>(in.tensors_size());
  for (const wire::Tensor& tensor : in.tensors()) {
    if (tensor.dtype() >= kNumDTypes || tensor.dims_size() > Shape::kMaxDims) {
      return Status::Internal(fmt::format("a tensor with dtype {} and {} dimensions",
                                          tensor.dtype(), tensor.dims_size()));
    }
    const std::vector<int64_t> dims(tensor.dims().begin(), tensor.dims().end());
    out.tensors.push_back({tensor.name(), static_cast<DType>(tensor.dtype()), Shape::Of(dims)});
  }
  return out;
}

std::string RankList(std::span<const int> ranks) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < ranks.size();) {
    size_t j = i;
    while (j + 1 < ranks.size() && ranks[j + 1] == ranks[j] + 1) ++j;
    runs.push_back(i == j ? fmt::format("{}", ranks[i])
                          : fmt::format("{}{}{}", ranks[i], j == i + 1 ? ", " : "-", ranks[j]));
    i = j + 1;
  }
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(runs, ", "));
}

Status CompareDescriptions(std::string_view what, std::span<const Description> by_rank) {
  std::map<std::string, std::vector<int>> invalid;
  size_t num_invalid = 0;
  for (size_t r = 0; r < by_rank.size(); ++r) {
    if (by_rank[r].invalid.empty()) continue;
    invalid[by_rank[r].invalid].push_back(static_cast<int>(r));
    ++num_invalid;
  }
  if (num_invalid != 0) {
    std::vector<std::string> parts;
    for (const auto& [text, ranks] : invalid)
      parts.push_back(fmt::format("{}: {}", RankList(ranks), text));
    std::string text = fmt::format("{}: {}", what, fmt::join(parts, "; "));
    return num_invalid == by_rank.size() ? Status::InvalidArgument(std::move(text))
                                         : Status::Mismatch(std::move(text));
  }
  const auto mismatch = [&](const std::string& differences) {
    return Status::Mismatch(fmt::format("{}: {}", what, differences));
  };
  std::string text =
      Differences(by_rank, [](const Description& d) { return std::string(OpKindName(d.kind)); });
  if (!text.empty()) return mismatch(text);
  text = Differences(by_rank,
                     [](const Description& d) { return fmt::format("{} tensors", d.group_size); });
  if (!text.empty()) return mismatch(text);
  size_t tensors = by_rank.front().tensors.size();
  for (const Description& d : by_rank) tensors = std::min(tensors, d.tensors.size());
  for (size_t i = 0; i < tensors; ++i) {
    text = Differences(by_rank, [i](const Description& d) { return TensorText(d, i); });
    if (!text.empty()) return mismatch(tensors > 1 ? fmt::format("tensor {}: {}", i, text) : text);
  }
  if (Reduces(by_rank.front().kind)) {
    text = Differences(by_rank, [](const Description& d) {
      return fmt::format("operator {}, prescale {}, postscale {}", ReduceOpName(d.op), d.prescale,
                         d.postscale);
    });
    if (!text.empty()) return mismatch(text);
  }
  if (by_rank.front().kind == OpKind::kBroadcast) {
    text =
        Differences(by_rank, [](const Description& d) { return fmt::format("root {}", d.root); });
    if (!text.empty()) return mismatch(text);
  }
  text = Differences(by_rank, [](const Description& d) {
    return fmt::format("bucket size {} (RONDE_BUCKET_BYTES)", d.bucket_bytes);
  });
  if (!text.empty()) return mismatch(text);
  return Status::Ok();
}

}  // namespace ronde
