// Python's tensors as ronde::Tensor, and back, without any framework's headers.
#pragma once

#include <memory>
#include <span>

#include "bindings/python/src/nb.h"
#include "ronde/request.h"
#include "ronde/status.h"
#include "ronde/tensor.h"

namespace ronde::python {

// Reads address, dtype, shape and layout of
//   - whatever exports a buffer (a NumPy array, a bytearray), or
//   - an object with PyTorch's attributes and a dtype that register_dtypes was told.
// The caller keeps `object` alive while the view is used. `writable`: the memory will be written.
// Unsupported: sparse, on another device, or of a dtype without an equivalent. InvalidArgument: not
// a tensor, not contiguous, read-only. Texts read on after "tensor 0 ". REQUIRES: the GIL; clears
// the Python errors that it meets.
Status ReadTensor(nb::handle object, bool writable, Tensor* out);

// A torch.Tensor or numpy.ndarray over memory that `owner` keeps alive: with a storage of its own,
// not a view of another tensor. Raises ImportError when that framework is not there. `strides` in
// elements, one for each dimension; empty: contiguous. REQUIRES: the GIL.
nb::object MakeTorchTensor(const TensorView& view, std::span<const int64_t> shape,
                           std::span<const int64_t> strides, std::shared_ptr<void> owner);
nb::object MakeNumpyArray(const TensorView& view, std::span<const int64_t> shape,
                          std::shared_ptr<void> owner);

// Raises ronde.Unsupported for a torch dtype that has no equivalent.
DType DTypeOf(nb::handle torch_dtype);

void RegisterTensors(nb::module_& module);

}  // namespace ronde::python
