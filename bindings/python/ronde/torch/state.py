"""Models and optimizers made equal on all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from ronde._job import rank
from ronde._objects import broadcast_object
from ronde._ops import synchronize
from ronde.errors import Error
from ronde.torch._tensors import broadcast_async_

Parameters = Mapping[str, Any] | Iterable[Any]


def _named_tensors(params: Parameters) -> list[tuple[str, torch.Tensor]]:
    if isinstance(params, Mapping):
        named = sorted(params.items())
    else:
        named = [p if isinstance(p, tuple) else (str(i), p) for i, p in enumerate(params)]
    return named


def _broadcast_in_place(named: list[tuple[str, torch.Tensor]], root_rank: int) -> None:
    """Broadcasts all at once; strided tensors by way of a contiguous copy.

    When one fails, the others are waited for before its error is raised, so that no name stays in
    flight.
    """
    pending = []
    errors: list[Error] = []
    with torch.no_grad():
        for name, tensor in named:
            # What is no tensor takes part too, and is refused on every rank.
            buffer = tensor.detach() if isinstance(tensor, torch.Tensor) else tensor
            if isinstance(buffer, torch.Tensor) and not buffer.is_contiguous():
                buffer = buffer.contiguous()
            try:
                pending.append((tensor, buffer, broadcast_async_(buffer, root_rank, name)))
            except Error as error:
                errors.append(error)
        for tensor, buffer, handle in pending:
            try:
                synchronize(handle)
            except Error as error:
                errors.append(error)
                continue
            if buffer.data_ptr() != tensor.data_ptr():
                tensor.copy_(buffer)
    if errors:
        raise errors[0]


def broadcast_parameters(params: Parameters, root_rank: int = 0) -> None:
    """Overwrites every rank's tensors with those of the root; blocks.

    Args:
        params: ``model.state_dict()``, ``model.named_parameters()``, or an iterable of tensors.
            The same names (or, without names, the same number in the same order), shapes and
            dtypes on all ranks.
        root_rank: the rank whose values all get.

    Raises:
        ronde.Mismatch: shapes or dtypes differ; the text names the parameter, ranks and values.
    """
    named = [(f"broadcast_parameters.{name}", tensor) for name, tensor in _named_tensors(params)]
    _broadcast_in_place(named, root_rank)


class _Placeholder:
    """Stands for a tensor in a pickled state: its number among the state's tensors."""

    def __init__(self, index: int, tensor: torch.Tensor) -> None:
        self.index = index
        self.shape = tuple(tensor.shape)
        self.dtype = tensor.dtype

    def empty(self) -> torch.Tensor:
        return torch.empty(self.shape, dtype=self.dtype)


def _map(value: Any, kind: type, function: Any) -> Any:
    """`value` with everything of `kind` replaced, inside of dicts, lists and tuples."""
    if isinstance(value, kind):
        return function(value)
    if isinstance(value, dict):
        return {key: _map(item, kind, function) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_map(item, kind, function) for item in value)
    return value


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int = 0) -> None:
    """Gives every rank's optimizer the state of the root's: hyper-parameters and buffers; blocks.

    Args:
        optimizer: any torch.optim.Optimizer, wrapped or not, over the same parameters on all ranks.
            It takes no step; a rank without state gets the root's.
        root_rank: the rank whose state all get.
    """
    tensors: list[torch.Tensor] = []

    def take(tensor: torch.Tensor) -> _Placeholder:
        tensors.append(tensor.detach().contiguous())
        return _Placeholder(len(tensors) - 1, tensor)

    def make(placeholder: _Placeholder) -> torch.Tensor:
        tensors.append(placeholder.empty())
        return tensors[-1]

    is_root = rank() == root_rank
    outline = _map(optimizer.state_dict(), torch.Tensor, take) if is_root else None
    outline = broadcast_object(outline, root_rank, "broadcast_optimizer_state")
    # Dictionaries keep their order, so both sides number the tensors alike.
    state = None if is_root else _map(outline, _Placeholder, make)
    named = [(f"broadcast_optimizer_state.{i}", tensor) for i, tensor in enumerate(tensors)]
    _broadcast_in_place(named, root_rank)
    if state is not None:
        optimizer.load_state_dict(state)
