"""The collectives on NumPy arrays; needs no PyTorch.

Arrays may be of any shape, with elements of bool, (u)int8, int16, int32, int64, float16, float32 or
float64 in the machine's byte order. Out-of-place functions also take what numpy.asarray takes. See
the functions' own texts, and ronde.torch for the same on tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ronde import _core
from ronde._job import (
    cross_rank,
    cross_size,
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from ronde._objects import broadcast_object
from ronde._ops import (
    Average,
    Collectives,
    Handle,
    Max,
    Min,
    Product,
    ReduceOp,
    Sum,
    barrier,
    poll,
    refused,
    synchronize,
)

Array = np.ndarray[Any, Any]


class _NumpyArrays:
    """ronde._ops.Framework for NumPy."""

    def checked(self, tensor: Array) -> Array:
        return tensor if isinstance(tensor, np.ndarray) else refused(tensor)

    def contiguous(self, tensor: Array) -> Array:
        try:
            return np.asarray(tensor, order="C")
        except (TypeError, ValueError):
            return refused(tensor)

    def empty_like(self, tensor: Array) -> Array:
        return np.empty(tensor.shape, tensor.dtype) if isinstance(tensor, np.ndarray) else tensor

    def empty_rows(self, tensor: Array, rows: int) -> Array:
        if not self.rows(tensor):
            return self.empty_like(tensor)
        return np.empty((rows, *tensor.shape[1:]), tensor.dtype)

    def rows(self, tensor: Array) -> int:
        return tensor.shape[0] if isinstance(tensor, np.ndarray) and tensor.ndim else 0

    def output(self, handle: _core.Handle, i: int, tensor: Array) -> Array:
        result = handle.numpy_output(i)
        return result.reshape((result.shape[0], *tensor.shape[1:]))

    def splits(self, values: list[int]) -> Array:
        return np.array(values, dtype=np.int64)

    def written(self, tensor: Array) -> None:
        pass


_collectives: Collectives[Array] = Collectives(_NumpyArrays())
allreduce = _collectives.allreduce
allreduce_ = _collectives.allreduce_
allreduce_async = _collectives.allreduce_async
allreduce_async_ = _collectives.allreduce_async_
grouped_allreduce = _collectives.grouped_allreduce
grouped_allreduce_ = _collectives.grouped_allreduce_
grouped_allreduce_async = _collectives.grouped_allreduce_async
grouped_allreduce_async_ = _collectives.grouped_allreduce_async_
allgather = _collectives.allgather
allgather_async = _collectives.allgather_async
grouped_allgather = _collectives.grouped_allgather
grouped_allgather_async = _collectives.grouped_allgather_async
broadcast = _collectives.broadcast
broadcast_ = _collectives.broadcast_
broadcast_async = _collectives.broadcast_async
broadcast_async_ = _collectives.broadcast_async_
reducescatter = _collectives.reducescatter
reducescatter_async = _collectives.reducescatter_async
grouped_reducescatter = _collectives.grouped_reducescatter
grouped_reducescatter_async = _collectives.grouped_reducescatter_async
alltoall = _collectives.alltoall
alltoall_async = _collectives.alltoall_async

__all__ = [
    "Average",
    "Handle",
    "Max",
    "Min",
    "Product",
    "ReduceOp",
    "Sum",
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "cross_rank",
    "cross_size",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "shutdown",
    "size",
    "synchronize",
]
