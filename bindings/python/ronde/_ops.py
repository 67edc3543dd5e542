"""The collectives, once for every framework; ronde.torch and ronde.numpy bind them to theirs."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from ronde import _core
from ronde._job import session
from ronde.errors import InvalidArgument

T = TypeVar("T")


class ReduceOp(enum.IntEnum):
    """How the ranks' elements become one. Values as ronde::ReduceOp in C++."""

    Sum = 0
    Average = 1
    Min = 2
    Max = 3
    Product = 4


Sum = ReduceOp.Sum
Average = ReduceOp.Average
Min = ReduceOp.Min
Max = ReduceOp.Max
Product = ReduceOp.Product


class _Kind(enum.IntEnum):
    """Values as ronde::OpKind in C++."""

    ALLREDUCE = 0
    ALLGATHER = 1
    BROADCAST = 2
    REDUCESCATTER = 3
    ALLTOALL = 4
    BARRIER = 5


_ALLREDUCE = int(_Kind.ALLREDUCE)
_ALLGATHER = int(_Kind.ALLGATHER)
_BROADCAST = int(_Kind.BROADCAST)
_REDUCESCATTER = int(_Kind.REDUCESCATTER)
_ALLTOALL = int(_Kind.ALLTOALL)
_BARRIER = int(_Kind.BARRIER)


class Framework(Protocol[T]):
    """What the collectives need to know about a tensor library."""

    def checked(self, tensor: T) -> T:
        """The tensor itself; for anything else an object that Ronde refuses, on every rank."""

    def contiguous(self, tensor: T) -> T:
        """Likewise, or a contiguous copy."""

    def empty_like(self, tensor: T) -> T:
        """An uninitialised tensor for a result of this shape; not of a wrong kind of tensor."""

    def empty_rows(self, tensor: T, rows: int) -> T:
        """The same with another first dimension."""

    def rows(self, tensor: T) -> int:
        """The first dimension; 0 when there is none."""

    def output(self, handle: _core.Handle, i: int, tensor: T) -> T:
        """Result `i`, which Ronde allocated, in the shape of rows of `tensor`."""

    def splits(self, values: list[int]) -> T:
        """A tensor of int64."""

    def written(self, tensor: T) -> None:
        """Told after `tensor` was changed in place."""


class Handle(Generic[T]):
    """An operation in flight, as the ``*_async`` functions return it.

    Opaque, like an integer handle of Horovod: good for ``poll`` and ``synchronize``. It keeps the
    tensors' memory alive, and may be dropped at any time; the operation then completes without it.
    """

    __slots__ = ("_finish", "_work")

    def __init__(self, work: _core.Handle, finish: Callable[[], Any]) -> None:
        self._work = work
        self._finish = finish


def refused(wrong: object, what: str | None = None) -> Any:
    """Stands for an argument of a wrong class, in messages too: the extension cannot read it.

    So the operation fails on every rank. (An array given to ronde.torch could be read, but whoever
    gives it expects a tensor back.) ``what``: how messages call it; None: by its class's name.
    """
    return type(what or type(wrong).__name__, (), {})()


def _listed(tensors: Any) -> list[Any]:
    """A group's tensors. What is no iterable, or raises, is refused, on every rank too."""
    try:
        return list(tensors)
    except Exception:  # whatever the caller's generator raises
        return [refused(tensors)]


def _handle_of(handle: object) -> Handle[Any]:
    if not isinstance(handle, Handle):
        raise InvalidArgument(
            f"{handle!r} is not a handle; must be what a function named *_async returned"
        )
    return handle


def poll(handle: Handle[Any]) -> bool:
    """Whether the operation is done, well or badly; ``synchronize`` then does not block.

    Moves the operation forward by one bounded step.
    """
    return _handle_of(handle)._work.poll()


def synchronize(handle: Handle[Any], timeout_s: float | None = None) -> Any:
    """Waits for an operation and returns its result, as the function without ``_async`` does.

    Args:
        handle: what a ``*_async`` function returned.
        timeout_s: seconds to wait at most; None: ``RONDE_TIMEOUT_S``.

    Raises:
        ronde.Timeout: the time is over. After ``timeout_s`` the operation is still in flight, and
            ``synchronize`` may be called again.
        ronde.Error: the operation failed, see the blocking function.
    """
    known = _handle_of(handle)
    known._work.wait(-1 if timeout_s is None else max(0, int(timeout_s * 1000)))
    return known._finish()


def barrier() -> None:
    """Blocks until every rank has called it."""
    _core.run(session(), _BARRIER, None, [], None, 0, 1.0, 1.0, 0, None, None)


def _run(
    kind: int,
    name: str | None,
    inputs: list[Any],
    outputs: list[Any] | None,
    op: Any = Sum,
    prescale: float = 1.0,
    postscale: float = 1.0,
    root: int = 0,
    splits: Any = None,
) -> _core.Handle | None:
    return _core.run(
        session(), kind, name, inputs, outputs, op, prescale, postscale, root, splits, None
    )


def _submit(
    kind: int,
    name: str | None,
    inputs: list[Any],
    outputs: list[Any] | None,
    op: Any = Sum,
    prescale: float = 1.0,
    postscale: float = 1.0,
    root: int = 0,
    splits: Any = None,
) -> _core.Handle:
    return _core.submit(
        session(), kind, name, inputs, outputs, op, prescale, postscale, root, splits, None
    )


def _split_list(splits: Any) -> Any:
    """A list of integers from a list, a tensor or an array; anything else is left to be refused."""
    if hasattr(splits, "tolist"):
        return splits.tolist()
    return list(splits) if isinstance(splits, Sequence) else splits


class Collectives(Generic[T]):
    """The collectives of one framework; its methods are the framework module's functions.

    What holds for all of them: every rank of the job calls the same operation. Operations with a
    ``name`` match by name, in whatever order the ranks call them, and a name may be in flight once;
    those without match by their position among the unnamed ones. Tensors are dense, on the CPU, of
    dtype bool, uint8, int8, int16, int32, int64, float16, bfloat16, float32 or float64.

    Raised by all of them:
        ronde.NotInitialized: ``init()`` was not called.
        ronde.InvalidArgument, ronde.Unsupported: an argument is not allowed. Wrong arguments on one
            rank raise on every rank.
        ronde.Mismatch: the ranks disagree about dtype, shape, operator or root.
        ronde.PeerLost, ronde.Timeout, ronde.Aborted: the job has ended.
    """

    def __init__(self, framework: Framework[T]) -> None:
        self._framework = framework

    def _in_out(self, tensors: Iterable[T]) -> tuple[list[T], list[T]]:
        inputs = [self._framework.contiguous(tensor) for tensor in _listed(tensors)]
        return inputs, [self._framework.empty_like(tensor) for tensor in inputs]

    def _written(self, tensors: list[T]) -> None:
        for tensor in tensors:
            self._framework.written(tensor)

    # allreduce

    def allreduce(
        self,
        tensor: T,
        name: str | None = None,
        op: ReduceOp = Average,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> T:
        """Reduces the ranks' tensors elementwise; every rank gets the same bits.

        Args:
            tensor: of any shape, the same on all ranks. Not changed.
            name: see above.
            op: Average, Sum, Min, Max or Product.
            prescale_factor: every rank's tensor is multiplied by it first.
            postscale_factor: the result is multiplied by it.

        Returns:
            A new tensor of the same shape and dtype. 16-bit floats are added in float32; an
            average of integers is rounded down.
        """
        source = self._framework.contiguous(tensor)
        result = self._framework.empty_like(source)
        _run(_ALLREDUCE, name, [source], [result], op, prescale_factor, postscale_factor)
        return result

    def allreduce_(
        self,
        tensor: T,
        name: str | None = None,
        op: ReduceOp = Average,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> T:
        """``allreduce`` into the tensor itself, which must be contiguous; returns it."""
        tensors = [self._framework.checked(tensor)]
        _run(_ALLREDUCE, name, tensors, tensors, op, prescale_factor, postscale_factor)
        self._framework.written(tensor)
        return tensor

    def allreduce_async(
        self,
        tensor: T,
        name: str | None = None,
        op: ReduceOp = Average,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> Handle[T]:
        """Starts ``allreduce``. Leave the tensor unchanged until ``synchronize``."""
        inputs, outputs = self._in_out([tensor])
        work = _submit(_ALLREDUCE, name, inputs, outputs, op, prescale_factor, postscale_factor)
        return Handle(work, lambda: outputs[0])

    def allreduce_async_(
        self,
        tensor: T,
        name: str | None = None,
        op: ReduceOp = Average,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> Handle[T]:
        """Starts ``allreduce_``. Leave the tensor alone until ``synchronize``."""
        tensors = [self._framework.checked(tensor)]
        work = _submit(_ALLREDUCE, name, tensors, tensors, op, prescale_factor, postscale_factor)
        self._framework.written(tensor)
        return Handle(work, lambda: tensor)

    def grouped_allreduce(
        self,
        tensors: Sequence[T],
        name: str | None = None,
        op: ReduceOp = Average,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> list[T]:
        """``allreduce`` of several tensors as one operation; shapes and dtypes may differ."""
        inputs, outputs = self._in_out(tensors)
        _run(_ALLREDUCE, name, inputs, outputs, op, prescale_factor, postscale_factor)
        return outputs

    def grouped_allreduce_(
        self,
        tensors: Sequence[T],
        name: str | None = None,
        op: ReduceOp = Average,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> list[T]:
        """``grouped_allreduce`` into the tensors themselves; returns them."""
        inputs = [self._framework.checked(tensor) for tensor in _listed(tensors)]
        _run(_ALLREDUCE, name, inputs, inputs, op, prescale_factor, postscale_factor)
        self._written(inputs)
        return inputs

    def grouped_allreduce_async(
        self,
        tensors: Sequence[T],
        name: str | None = None,
        op: ReduceOp = Average,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> Handle[list[T]]:
        """Starts ``grouped_allreduce``."""
        inputs, outputs = self._in_out(tensors)
        work = _submit(_ALLREDUCE, name, inputs, outputs, op, prescale_factor, postscale_factor)
        return Handle(work, lambda: outputs)

    def grouped_allreduce_async_(
        self,
        tensors: Sequence[T],
        name: str | None = None,
        op: ReduceOp = Average,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> Handle[list[T]]:
        """Starts ``grouped_allreduce_``."""
        inputs = [self._framework.checked(tensor) for tensor in _listed(tensors)]
        work = _submit(_ALLREDUCE, name, inputs, inputs, op, prescale_factor, postscale_factor)
        self._written(inputs)
        return Handle(work, lambda: inputs)

    # allgather

    def allgather(self, tensor: T, name: str | None = None) -> T:
        """Concatenates the ranks' tensors along dimension 0, in rank order.

        Args:
            tensor: of at least one dimension; the first may differ from rank to rank, the others
                and the dtype may not.
            name: see above.

        Returns:
            A new tensor: its first dimension is the sum of the ranks' first dimensions.
        """
        return self.grouped_allgather([tensor], name)[0]

    def allgather_async(self, tensor: T, name: str | None = None) -> Handle[T]:
        """Starts ``allgather``. Leave the tensor unchanged until ``synchronize``."""
        inputs = [self._framework.contiguous(tensor)]
        work = _submit(_ALLGATHER, name, inputs, None)
        return Handle(work, lambda: self._framework.output(work, 0, inputs[0]))

    def grouped_allgather(self, tensors: Sequence[T], name: str | None = None) -> list[T]:
        """``allgather`` of several tensors as one operation."""
        inputs = [self._framework.contiguous(tensor) for tensor in _listed(tensors)]
        work = _run(_ALLGATHER, name, inputs, None)
        return self._outputs(work, inputs)

    def grouped_allgather_async(
        self, tensors: Sequence[T], name: str | None = None
    ) -> Handle[list[T]]:
        """Starts ``grouped_allgather``."""
        inputs = [self._framework.contiguous(tensor) for tensor in _listed(tensors)]
        work = _submit(_ALLGATHER, name, inputs, None)
        return Handle(work, lambda: self._outputs(work, inputs))

    def _outputs(self, work: _core.Handle | None, inputs: list[T]) -> list[T]:
        if work is None:
            return []
        return [self._framework.output(work, i, tensor) for i, tensor in enumerate(inputs)]

    # broadcast

    def broadcast(self, tensor: T, root_rank: int, name: str | None = None) -> T:
        """Gives every rank the root's tensor.

        Args:
            tensor: of the same shape and dtype on all ranks; only the root's is read.
            root_rank: the rank that sends, 0 to size() - 1; the same on all ranks.
            name: see above.

        Returns:
            A new tensor with the root's elements, also on the root.
        """
        inputs, outputs = self._in_out([tensor])
        _run(_BROADCAST, name, inputs, outputs, root=root_rank)
        return outputs[0]

    def broadcast_(self, tensor: T, root_rank: int, name: str | None = None) -> T:
        """``broadcast`` into the tensor itself, which must be contiguous; returns it."""
        tensors = [self._framework.checked(tensor)]
        _run(_BROADCAST, name, tensors, tensors, root=root_rank)
        self._framework.written(tensor)
        return tensor

    def broadcast_async(self, tensor: T, root_rank: int, name: str | None = None) -> Handle[T]:
        """Starts ``broadcast``. Leave the tensor unchanged until ``synchronize``."""
        inputs, outputs = self._in_out([tensor])
        work = _submit(_BROADCAST, name, inputs, outputs, root=root_rank)
        return Handle(work, lambda: outputs[0])

    def broadcast_async_(self, tensor: T, root_rank: int, name: str | None = None) -> Handle[T]:
        """Starts ``broadcast_``. Leave the tensor alone until ``synchronize``."""
        tensors = [self._framework.checked(tensor)]
        work = _submit(_BROADCAST, name, tensors, tensors, root=root_rank)
        self._framework.written(tensor)
        return Handle(work, lambda: tensor)

    # reducescatter

    def _scattered(self, tensors: Iterable[T]) -> tuple[list[T], list[T]]:
        job = session()
        inputs = [self._framework.contiguous(tensor) for tensor in _listed(tensors)]
        outputs = []
        for tensor in inputs:
            rows = self._framework.rows(tensor)
            mine = rows // job.size + (1 if job.rank < rows % job.size else 0)
            outputs.append(self._framework.empty_rows(tensor, mine))
        return inputs, outputs

    def reducescatter(
        self,
        tensor: T,
        name: str | None = None,
        op: ReduceOp = Average,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> T:
        """Reduces the ranks' tensors elementwise; each rank gets its part of dimension 0.

        Args:
            tensor: of at least one dimension, the same shape on all ranks.
            name: see above.
            op: Average, Sum, Min, Max or Product.
            prescale_factor: every rank's tensor is multiplied by it first.
            postscale_factor: the result is multiplied by it.

        Returns:
            A new tensor with this rank's rows: the first dimension divided by the number of ranks,
            earlier ranks taking one more each when it does not divide.
        """
        inputs, outputs = self._scattered([tensor])
        _run(_REDUCESCATTER, name, inputs, outputs, op, prescale_factor, postscale_factor)
        return outputs[0]

    def reducescatter_async(
        self,
        tensor: T,
        name: str | None = None,
        op: ReduceOp = Average,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> Handle[T]:
        """Starts ``reducescatter``. Leave the tensor unchanged until ``synchronize``."""
        inputs, outputs = self._scattered([tensor])
        work = _submit(_REDUCESCATTER, name, inputs, outputs, op, prescale_factor, postscale_factor)
        return Handle(work, lambda: outputs[0])

    def grouped_reducescatter(
        self,
        tensors: Sequence[T],
        name: str | None = None,
        op: ReduceOp = Average,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> list[T]:
        """``reducescatter`` of several tensors as one operation."""
        inputs, outputs = self._scattered(tensors)
        _run(_REDUCESCATTER, name, inputs, outputs, op, prescale_factor, postscale_factor)
        return outputs

    def grouped_reducescatter_async(
        self,
        tensors: Sequence[T],
        name: str | None = None,
        op: ReduceOp = Average,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> Handle[list[T]]:
        """Starts ``grouped_reducescatter``."""
        inputs, outputs = self._scattered(tensors)
        work = _submit(_REDUCESCATTER, name, inputs, outputs, op, prescale_factor, postscale_factor)
        return Handle(work, lambda: outputs)

    # alltoall

    def alltoall(self, tensor: T, splits: Any = None, name: str | None = None) -> Any:
        """Sends a part of dimension 0 to every rank and returns the parts received.

        Args:
            tensor: of at least one dimension; all but the first are the same on all ranks.
            splits: how many rows go to each rank: size() non-negative integers (a list, tensor or
                array) that add up to the first dimension. None: equal parts.
            name: see above.

        Returns:
            A new tensor, the rows received in rank order. With ``splits``: (that tensor, a tensor
            of int64 with the number of rows received from each rank).
        """
        inputs = [self._framework.contiguous(tensor)]
        work = _run(_ALLTOALL, name, inputs, None, splits=_split_list(splits))
        return self._exchanged(work, inputs[0], splits)

    def alltoall_async(self, tensor: T, splits: Any = None, name: str | None = None) -> Handle[Any]:
        """Starts ``alltoall``. Leave the tensor unchanged until ``synchronize``."""
        inputs = [self._framework.contiguous(tensor)]
        work = _submit(_ALLTOALL, name, inputs, None, splits=_split_list(splits))
        return Handle(work, lambda: self._exchanged(work, inputs[0], splits))

    def _exchanged(self, work: _core.Handle | None, tensor: T, splits: Any) -> Any:
        assert work is not None  # outputs were left to Ronde, so there is a handle
        rows = self._framework.output(work, 0, tensor)
        if splits is None:
            return rows
        return rows, self._framework.splits(work.received_splits())
