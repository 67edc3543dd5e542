#include "core/kernels/reduce.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <limits>

#include "core/kernels/variant.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ronde::kernels {
namespace {

constexpr std::array<Isa, 3> kIsas = {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512};

#if defined(__x86_64__)

// Clang 14's __builtin_cpu_supports does not know this one.
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// __builtin_cpu_supports asks XGETBV too: whether the operating system keeps the registers.
bool Supported(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return true;
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && HasF16c();
    case Isa::kAvx512:
      return Supported(Isa::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512dq");
  }
  return false;
}

#else

bool Supported(Isa isa) {
  return isa == Isa::kBaseline;
}

#endif

template <class T>
void FillWith(void* out, size_t count, T value) {
  char* p = static_cast<char*>(out);
  for (size_t i = 0; i < count; ++i) std::memcpy(p + i * sizeof(T), &value, sizeof(T));
}

// `least` and `most` are the type's limits, infinities where it has them.
template <class T>
void FillIdentityOf(ReduceOp op, void* out, size_t count, T least, T most, T one) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return FillWith<T>(out, count, T{});
    case ReduceOp::kMin:
      return FillWith<T>(out, count, most);
    case ReduceOp::kMax:
      return FillWith<T>(out, count, least);
    case ReduceOp::kProduct:
      return FillWith<T>(out, count, one);
  }
}

template <class T>
void FillIntIdentity(ReduceOp op, void* out, size_t count) {
  using Limits = std::numeric_limits<T>;
  FillIdentityOf<T>(op, out, count, Limits::min(), Limits::max(), T{1});
}

template <class T>
void FillFloatIdentity(ReduceOp op, void* out, size_t count) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  FillIdentityOf<T>(op, out, count, -kInfinity, kInfinity, T{1});
}

}  // namespace

const Variant& VariantOf([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kBaseline:
      break;
    case Isa::kAvx2:
      return Avx2Variant();
    case Isa::kAvx512:
      return Avx512Variant();
  }
#endif
  return BaselineVariant();
}

std::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return "baseline";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "invalid";
}

Isa DetectIsa() {
  // Once: under a hypervisor every question to the processor is a trap of tens of microseconds.
  static const Isa best = Supported(Isa::kAvx512) ? Isa::kAvx512
                          : Supported(Isa::kAvx2) ? Isa::kAvx2
                                                  : Isa::kBaseline;
  return best;
}

Result<Isa> ParseIsa(std::string_view name) {
  if (name == "auto") return DetectIsa();
  for (const Isa isa : kIsas) {
    if (IsaName(isa) != name) continue;
    if (Supported(isa)) return isa;
    return Status::InvalidArgument(fmt::format(
        "instruction set '{}' is not supported by this processor; the best one here is '{}'", name,
        IsaName(DetectIsa())));
  }
  return Status::InvalidArgument(
      fmt::format("unknown instruction set '{}'; allowed: auto, baseline, avx2, avx512", name));
}

ReduceFn FindReduce(Isa isa, DType dtype, ReduceOp op) {
  return VariantOf(isa).find(dtype, op);
}

void Scale(DType dtype, const void* in, void* out, size_t count, double factor) {
  ReduceArgs args{};
  args.srcs = &in;
  args.num_srcs = 1;
  args.dsts = &out;
  args.num_dsts = 1;
  args.count = count;
  args.prescale = factor;
  FindReduce(DetectIsa(), dtype, ReduceOp::kSum)(args);
}

void FillIdentity(DType dtype, ReduceOp op, void* out, size_t count) {
  switch (dtype) {
    case DType::kBool:
      return FillIdentityOf<uint8_t>(op, out, count, 0, 1, 1);
    case DType::kUint8:
      return FillIntIdentity<uint8_t>(op, out, count);
    case DType::kInt8:
      return FillIntIdentity<int8_t>(op, out, count);
    case DType::kInt16:
      return FillIntIdentity<int16_t>(op, out, count);
    case DType::kInt32:
      return FillIntIdentity<int32_t>(op, out, count);
    case DType::kInt64:
      return FillIntIdentity<int64_t>(op, out, count);
    case DType::kFloat16:
      return FillIdentityOf<uint16_t>(op, out, count, 0xfc00, 0x7c00, 0x3c00);
    case DType::kBfloat16:
      return FillIdentityOf<uint16_t>(op, out, count, 0xff80, 0x7f80, 0x3f80);
    case DType::kFloat32:
      return FillFloatIdentity<float>(op, out, count);
    case DType::kFloat64:
      return FillFloatIdentity<double>(op, out, count);
  }
}

}  // namespace ronde::kernels
