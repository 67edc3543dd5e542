"""PyTorch's tensors for the collectives of ronde._ops."""

from __future__ import annotations

import torch
from torch.autograd.graph import increment_version

from ronde import _core
from ronde._ops import Collectives, refused

_core.register_dtypes(
    {
        torch.bool: "bool",
        torch.uint8: "uint8",
        torch.int8: "int8",
        torch.int16: "int16",
        torch.int32: "int32",
        torch.int64: "int64",
        torch.float16: "float16",
        torch.bfloat16: "bfloat16",
        torch.float32: "float32",
        torch.float64: "float64",
    }
)


def _is_dense(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided


class _TorchTensors:
    """ronde._ops.Framework for PyTorch."""

    def checked(self, tensor: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor, torch.Tensor):
            return refused(tensor)
        if _is_dense(tensor) and tensor.is_neg():
            return refused(tensor, "negated view (copy it by resolve_neg())")
        return tensor

    def contiguous(self, tensor: torch.Tensor) -> torch.Tensor:
        if not _is_dense(tensor):
            return self.checked(tensor)
        if tensor.is_neg():  # its memory has the values with the other sign
            return tensor.detach().resolve_neg().contiguous()
        return tensor if tensor.is_contiguous() else tensor.detach().contiguous()

    def empty_like(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(tensor) if _is_dense(tensor) else tensor

    def empty_rows(self, tensor: torch.Tensor, rows: int) -> torch.Tensor:
        if not self.rows(tensor):
            return self.empty_like(tensor)
        return torch.empty((rows, *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)

    def rows(self, tensor: torch.Tensor) -> int:
        return tensor.shape[0] if isinstance(tensor, torch.Tensor) and tensor.dim() else 0

    def output(self, handle: _core.Handle, i: int, tensor: torch.Tensor) -> torch.Tensor:
        result = handle.torch_output(i)
        return result.reshape((result.shape[0], *tensor.shape[1:]))

    def splits(self, values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64)

    def written(self, tensor: torch.Tensor) -> None:
        # Autograd then notices when the overwritten values were needed for a backward pass.
        if isinstance(tensor, torch.Tensor):
            increment_version(tensor)


_collectives: Collectives[torch.Tensor] = Collectives(_TorchTensors())
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
