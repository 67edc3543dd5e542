#include "bindings/python/src/tensors.h"

#include <bit>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bindings/python/src/errors.h"
#include "bindings/python/src/names.h"
#include "bindings/python/src/nb.h"

namespace ronde::python {
namespace {

constexpr const char* kAllowedDTypes =
    "allowed: bool, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64";

// torch.dtype -> our number, filled once by ronde.torch. Never destroyed: at exit the interpreter
// goes first.
PyObject* TorchDTypes() {
  static PyObject* const dtypes = PyDict_New();
  return dtypes;
}

nb::object GetAttr(nb::handle object, PyObject* name) {
  nb::object value = nb::steal(PyObject_GetAttr(object.ptr(), name));
  if (!value.is_valid()) PyErr_Clear();
  return value;
}

nb::object CallMethod(nb::handle object, PyObject* name) {
  nb::object value = nb::steal(PyObject_CallMethodNoArgs(object.ptr(), name));
  if (!value.is_valid()) PyErr_Clear();
  return value;
}

std::string Text(nb::handle object) {
  return object.is_valid() ? nb::cast<std::string>(nb::str(object)) : "?";
}

// False when `tuple` is not a tuple of integers.
bool ReadShape(nb::handle tuple, Shape* shape) {
  if (!tuple.is_valid() || !PyTuple_Check(tuple.ptr())) return false;
  *shape = Shape();
  const Py_ssize_t ndim = PyTuple_Size(tuple.ptr());
  for (Py_ssize_t i = 0; i < ndim; ++i) {
    const int64_t dim = PyLong_AsLongLong(PyTuple_GetItem(tuple.ptr(), i));
    if (dim == -1 && PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      return false;
    }
    if (shape->ndim < Shape::kMaxDims) {
      shape->dims[static_cast<size_t>(shape->ndim++)] = dim;
    } else {
      shape->dims[Shape::kMaxDims - 1] *= dim;
    }
  }
  return true;
}

// Why the quick reading below failed, in words.
Status DiagnoseTorch(nb::handle tensor, nb::handle dtype) {
  const nb::object layout = GetAttr(tensor, TheNames().layout);
  if (!dtype.is_valid() || !layout.is_valid()) {
    return Status::InvalidArgument(
        fmt::format("is a {}; must be a tensor", Py_TYPE(tensor.ptr())->tp_name));
  }
  if (Text(layout) != "torch.strided") {
    return Status::Unsupported(
        fmt::format("has layout {}; allowed: dense (call .to_dense())", Text(layout)));
  }
  const nb::object is_cpu = GetAttr(tensor, TheNames().is_cpu);
  if (is_cpu.ptr() != Py_True) {
    return Status::Unsupported(
        fmt::format("is on device {}; allowed: cpu", Text(GetAttr(tensor, TheNames().device))));
  }
  return Status::Unsupported(fmt::format("has dtype {}; {}", Text(dtype), kAllowedDTypes));
}

Status ReadTorch(nb::handle tensor, Tensor* out) {
  const Names& names = TheNames();
  const nb::object dtype = GetAttr(tensor, names.dtype);
  const nb::object is_cpu = GetAttr(tensor, names.is_cpu);
  PyObject* number = dtype.is_valid() ? PyDict_GetItem(TorchDTypes(), dtype.ptr()) : nullptr;
  if (number == nullptr || is_cpu.ptr() != Py_True) return DiagnoseTorch(tensor, dtype);
  const nb::object contiguous = CallMethod(tensor, names.is_contiguous);
  const nb::object address = CallMethod(tensor, names.data_ptr);
  if (!contiguous.is_valid() || !address.is_valid()) return DiagnoseTorch(tensor, dtype);
  if (contiguous.ptr() != Py_True) {
    return Status::InvalidArgument("is not contiguous; an in-place operation needs one that is");
  }
  if (!ReadShape(GetAttr(tensor, names.shape), &out->shape)) return DiagnoseTorch(tensor, dtype);
  out->view.data = PyLong_AsVoidPtr(address.ptr());
  out->view.dtype = static_cast<DType>(PyLong_AsLong(number));
  out->view.count = out->shape.count();
  return Status::Ok();
}

// The struct module's format characters; `size` tells apart what C leaves open.
std::optional<DType> DTypeOfFormat(const char* format, Py_ssize_t size) {
  if (format == nullptr) format = "B";
  const char native = std::endian::native == std::endian::little ? '<' : '>';
  if (*format == '@' || *format == '=' || *format == native) ++format;
  if (format[0] == '\0' || format[1] != '\0') return std::nullopt;
  switch (*format) {
    case '?':
      return DType::kBool;
    case 'B':
      return DType::kUint8;
    case 'b':
      return DType::kInt8;
    case 'h':
    case 'i':
    case 'l':
    case 'q':
      if (size == 2) return DType::kInt16;
      return size == 4 ? DType::kInt32 : DType::kInt64;
    case 'e':
      return DType::kFloat16;
    case 'f':
      return DType::kFloat32;
    case 'd':
      return DType::kFloat64;
  }
  return std::nullopt;
}

Status ReadBuffer(nb::handle object, bool writable, Tensor* out) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(object.ptr(), &buffer, PyBUF_FORMAT | PyBUF_STRIDES) != 0) {
    const nb::python_error error;  // takes and so clears it
    return Status::Unsupported(
        fmt::format("has no plain memory ({}); {}", error.what(), kAllowedDTypes));
  }
  const std::optional<DType> dtype = DTypeOfFormat(buffer.format, buffer.itemsize);
  Status status;
  if (!dtype) {
    status = Status::Unsupported(fmt::format("has elements of format '{}' and {} bytes; {}",
                                             buffer.format, buffer.itemsize, kAllowedDTypes));
  } else if (PyBuffer_IsContiguous(&buffer, 'C') == 0) {
    status = Status::InvalidArgument("is not contiguous; an in-place operation needs one that is");
  } else if (writable && buffer.readonly != 0) {
    status = Status::InvalidArgument("is read-only; an in-place operation writes");
  } else {
    std::vector<int64_t> dims(buffer.shape, buffer.shape + buffer.ndim);
    out->shape = Shape::Of(dims);
    out->view = {buffer.buf, out->shape.count(), *dtype, {}};
  }
  // The exporter's memory does not move while the object lives: NumPy never reallocates, and a
  // bytearray is ours alone.
  PyBuffer_Release(&buffer);
  return status;
}

nb::dlpack::dtype DlpackType(DType dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto make = [&](Code code) {
    return nb::dlpack::dtype{static_cast<uint8_t>(code), static_cast<uint8_t>(8 * DTypeSize(dtype)),
                             1};
  };
  switch (dtype) {
    case DType::kBool:
      return make(Code::Bool);
    case DType::kUint8:
      return make(Code::UInt);
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
      return make(Code::Int);
    case DType::kBfloat16:
      return make(Code::Bfloat);
    case DType::kFloat16:
    case DType::kFloat32:
    case DType::kFloat64:
      return make(Code::Float);
  }
  return make(Code::UInt);
}

template <typename Framework>
nb::object MakeArray(const TensorView& view, std::span<const int64_t> shape,
                     std::span<const int64_t> strides, std::shared_ptr<void> memory) {
  const std::vector<size_t> dims(shape.begin(), shape.end());
  auto* holder = new std::shared_ptr<void>(std::move(memory));
  const nb::capsule owner(holder,
                          [](void* p) noexcept { delete static_cast<std::shared_ptr<void>*>(p); });
  const nb::ndarray<Framework> array(view.data, dims.size(), dims.data(), owner,
                                     strides.empty() ? nullptr : strides.data(),
                                     DlpackType(view.dtype), nb::device::cpu::value);
  return nb::cast(array);
}

}  // namespace

Status ReadTensor(nb::handle object, bool writable, Tensor* out) {
  // PyTorch's tensors export no buffer, so the two kinds never mix.
  if (PyObject_CheckBuffer(object.ptr()) != 0) return ReadBuffer(object, writable, out);
  return ReadTorch(object, out);
}

nb::object MakeTorchTensor(const TensorView& view, std::span<const int64_t> shape,
                           std::span<const int64_t> strides, std::shared_ptr<void> owner) {
  return MakeArray<nb::pytorch>(view, shape, strides, std::move(owner));
}

nb::object MakeNumpyArray(const TensorView& view, std::span<const int64_t> shape,
                          std::shared_ptr<void> owner) {
  return MakeArray<nb::numpy>(view, shape, {}, std::move(owner));
}

DType DTypeOf(nb::handle torch_dtype) {
  PyObject* number = PyDict_GetItem(TorchDTypes(), torch_dtype.ptr());
  if (number == nullptr) {
    Raise(Status::Unsupported(fmt::format("dtype {}; {}", Text(torch_dtype), kAllowedDTypes)));
  }
  return static_cast<DType>(PyLong_AsLong(number));
}

void RegisterTensors(nb::module_& module) {
  module.def(
      "register_dtypes",
      [](const nb::dict& names) {
        for (const auto& [dtype, name] : names) {
          const std::optional<DType> ours = ParseDType(nb::cast<std::string>(name));
          if (!ours) throw nb::value_error("unknown dtype name");
          const nb::int_ number(static_cast<int>(*ours));
          PyDict_SetItem(TorchDTypes(), dtype.ptr(), number.ptr());
        }
      },
      nb::arg("names"), "Tells which torch.dtype is which of Ronde's, by name.");
}

}  // namespace ronde::python
