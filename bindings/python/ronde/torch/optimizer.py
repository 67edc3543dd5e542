"""DistributedOptimizer: gradients reduced while backward() runs, final when it returns."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.autograd import Variable

from ronde import _core
from ronde._job import next_set_name, session
from ronde._ops import Average, ReduceOp
from ronde.errors import Error, InvalidArgument, Unsupported


class _EndOfBackward:
    """What autograd calls when a backward pass ends. Dropped without a call: the pass failed."""

    def __init__(self, rounds: _Rounds) -> None:
        self._rounds: _Rounds | None = rounds

    def __call__(self) -> None:
        rounds, self._rounds = self._rounds, None
        if rounds is not None:
            rounds.end_backward()

    def __del__(self) -> None:
        if self._rounds is not None:
            self._rounds.abandon_backward()


class _Rounds:
    """The rounds of one optimizer: which backward passes belong together, and their reduction.

    Owned by the optimizer. The hooks on the parameters know it weakly, so that a model outlives its
    optimizer unharmed.
    """

    def __init__(
        self,
        named: list[tuple[str, torch.nn.Parameter]],
        op: ReduceOp,
        passes_per_round: int,
        predivide_factor: float,
        frozen: list[tuple[str, torch.nn.Parameter]],
    ) -> None:
        self._frozen = frozen
        self._passes_per_round = passes_per_round
        self._passes = 0  # of the open round that are over
        self._accumulating = False  # in no_sync()
        self._this_pass_accumulates = False
        self._ended = 0  # rounds since the last step() or zero_grad()
        self.skip = False  # in skip_synchronize()

        # Backward produces the last parameters' gradients first, so those are to be sent first.
        named = list(reversed(named))
        self._params = [param for _, param in named]
        layouts = [_layout(param) for _, param in named]
        declared = [
            (name, [param.shape[d] for d in order], param.dtype)
            for (name, param), (order, _) in zip(named, layouts, strict=True)
        ]
        self._set = _core.declare(
            session(), next_set_name(), declared, op, 1.0 / predivide_factor, predivide_factor
        )
        for t, (_, strides) in enumerate(layouts):
            self._set.bind(t, list(self._params[t].shape), strides)

        begin = weakref.WeakMethod(self._begin_backward)
        self._set.set_begin(lambda: _call(begin()))
        handles = [
            param.register_post_accumulate_grad_hook(self._set.hook(t))  # type: ignore[no-untyped-call]
            for t, param in enumerate(self._params)
        ]
        weakref.finalize(self, _remove_all, handles)

    # One backward pass. The first hook that fires begins it.

    def _begin_backward(self) -> bool:
        if self._set.unfinished():
            # An earlier backward pass failed half-way. What it published stands, so its round is
            # ended here, for the sake of the other ranks; its results are overwritten.
            self._reduce()
        last = self._passes + 1 >= self._passes_per_round
        self._this_pass_accumulates = self._accumulating or not last
        Variable._execution_engine.queue_callback(_EndOfBackward(self))
        return self._this_pass_accumulates

    def end_backward(self) -> None:
        self._set.end_backward()
        if self._this_pass_accumulates:
            self._passes += 0 if self._accumulating else 1
        else:
            self._reduce()

    def abandon_backward(self) -> None:
        self._set.end_backward()

    def _reduce(self) -> None:
        """Ends the round: every gradient that there is takes part, and then is the result."""
        with torch.no_grad():
            for t in self._set.absent():
                self._set.contribute(t, self._params[t])
        self._passes = 0
        self._ended += 1
        for t in self._set.finish():
            self._params[t].grad = self._set.grad_tensor(t)
        self._set.raise_mismatches()

    # What the optimizer calls.

    def synchronize(self) -> None:
        if self._set.unfinished() or self._ended == 0:
            self._reduce()
        for name, param in self._frozen:
            if param.requires_grad and param.grad is not None:
                raise Unsupported(
                    f"parameter '{name}' required no gradient when its optimizer was wrapped, and "
                    "has one now that no other rank sees; call requires_grad_() before "
                    "DistributedOptimizer()"
                )

    def renew(self) -> None:
        """Gradients were used or are about to be cleared: the next round is a new one."""
        self._ended = 0
        self._set.renew()

    @contextlib.contextmanager
    def accumulating(self) -> Iterator[None]:
        outer, self._accumulating = self._accumulating, True
        try:
            yield
        finally:
            self._accumulating = outer

    def before_step(self, _optimizer: Any, args: Any, kwargs: Any) -> Any:
        """Optimizer's step pre-hook: a rank whose backward fired no hook takes part here."""
        if self.skip:
            return None
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            self.synchronize()
            return None
        wrapped = self._synchronized(closure)
        if len(args) > 1:
            return (args[0], wrapped, *args[2:]), kwargs
        return args, {**kwargs, "closure": wrapped}

    def _synchronized(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> Any:
            self.renew()
            result = closure()
            self.synchronize()
            return result

        return run

    def after_step(self, _optimizer: Any, _args: Any, _kwargs: Any) -> None:
        self.renew()


def _call(function: Callable[[], bool] | None) -> bool | None:
    return None if function is None else function()


def _remove_all(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()


def _layout(param: torch.Tensor) -> tuple[list[int], list[int]]:
    """The dimensions from the outermost in memory to the innermost, and the strides, of .grad.

    A channels-last parameter has a channels-last gradient, as without Ronde; and a rank on which it
    is not channels-last declares another shape, which is a mismatch. Parameters with gaps in their
    memory get a contiguous gradient.
    """
    strides = list(param.stride())
    order = sorted(range(param.dim()), key=lambda d: (-strides[d], d))
    if param.permute(order).is_contiguous():
        return order, strides
    return list(range(param.dim())), list(torch.empty(param.shape, device="meta").stride())


class _DistributedOptimizer:
    """The methods that DistributedOptimizer adds to the optimizer's class."""

    _ronde_rounds: _Rounds | None

    def synchronize(self) -> None:
        """Completes the reduction; blocks. Needed only where backward() fired no hook on a rank.

        Gradients are final when backward() returns. A rank whose loss depends on no parameter calls
        this (or step(), which does) so that the other ranks do not wait.
        """
        if self._ronde_rounds is not None:
            self._ronde_rounds.synchronize()

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within it step() does not call synchronize(); call that yourself, on every rank."""
        if self._ronde_rounds is None:
            yield
            return
        outer, self._ronde_rounds.skip = self._ronde_rounds.skip, True
        try:
            yield
        finally:
            self._ronde_rounds.skip = outer

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes within it only accumulate; the next one after it reduces the sum."""
        if self._ronde_rounds is None:
            yield
            return
        with self._ronde_rounds.accumulating():
            yield

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Neither copied nor pickled: a copy would step without the other ranks.

        Raises:
            ronde.Unsupported: always.
        """
        raise Unsupported(
            "a wrapped optimizer cannot be copied or pickled; save state_dict(), or copy the "
            "optimizer before DistributedOptimizer()"
        )

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As the optimizer's."""
        super().zero_grad(*args, **kwargs)  # type: ignore[misc]
        if self._ronde_rounds is not None:
            self._ronde_rounds.renew()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Not possible where gradients are reduced: the set of them is fixed.

        Raises:
            ronde.Unsupported: in a job of more than one rank.
        """
        if self._ronde_rounds is not None:
            raise Unsupported(
                "add_param_group() after DistributedOptimizer(): add the group to the optimizer "
                "first and wrap it then"
            )
        super().add_param_group(param_group)  # type: ignore[misc]


def _names_of(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.nn.Parameter]] | None,
) -> list[tuple[str, torch.nn.Parameter]]:
    """Every parameter of the optimizer, once, with its name."""
    given: dict[int, str] = {}
    for entry in named_parameters or ():
        if not (isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str)):
            raise InvalidArgument(
                f"named_parameters has an entry of type {type(entry).__name__}; must be pairs of a "
                "name and a parameter, as model.named_parameters() gives them"
            )
        name, param = entry
        if name in given.values() and given.get(id(param)) != name:
            raise InvalidArgument(f"named_parameters has the name '{name}' twice; must differ")
        given.setdefault(id(param), name)
    result: list[tuple[str, torch.nn.Parameter]] = []
    seen: set[int] = set()
    for g, group in enumerate(optimizer.param_groups):
        for i, param in enumerate(group["params"]):
            if id(param) in seen:
                continue
            seen.add(id(param))
            reduced = param.requires_grad
            if reduced and named_parameters is not None and id(param) not in given:
                raise InvalidArgument(
                    f"named_parameters lacks parameter {i} of group {g}, of shape "
                    f"{list(param.shape)}; must name all of the optimizer's"
                )
            if reduced and param.device.type != "cpu":
                raise Unsupported(
                    f"parameter {i} of group {g} is on device {param.device}; allowed: cpu"
                )
            result.append((given.get(id(param), f"{g}.{i}"), param))
    return result


def _check_arguments(
    op: ReduceOp, backward_passes_per_step: int, gradient_predivide_factor: float
) -> None:
    if op not in tuple(ReduceOp):
        raise InvalidArgument(f"op is {op!r}; must be Average, Sum, Min, Max or Product")
    if not isinstance(gradient_predivide_factor, (int, float)):
        raise InvalidArgument(
            f"gradient_predivide_factor is {gradient_predivide_factor!r}; must be a number"
        )
    if not isinstance(backward_passes_per_step, int) or backward_passes_per_step < 1:
        raise InvalidArgument(
            f"backward_passes_per_step is {backward_passes_per_step!r}; must be an integer >= 1"
        )
    if not gradient_predivide_factor > 0 or gradient_predivide_factor == float("inf"):
        raise InvalidArgument(
            f"gradient_predivide_factor is {gradient_predivide_factor!r}; must be finite and > 0"
        )
    if gradient_predivide_factor != 1.0 and op != Average:
        raise InvalidArgument("gradient_predivide_factor needs op=Average")


def _decline(why: str) -> None:
    """Fails the declaration on the other ranks, which wait for this one to take part."""
    if session().size == 1:
        return
    # This rank raises its own error, which says more than the declaration's.
    with contextlib.suppress(Error):
        _core.declare(session(), next_set_name(), [], Average, 1.0, 1.0, why)


def DistributedOptimizer(  # noqa: N802
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.nn.Parameter]] | None = None,
    op: ReduceOp = Average,
    backward_passes_per_step: int = 1,
    gradient_predivide_factor: float = 1.0,
) -> Any:
    """Wraps an optimizer so that backward() leaves gradients that are reduced over all ranks.

    Collective: every rank wraps optimizers in the same order; blocks until all did. Each gradient
    is reduced while backward() goes on, in memory that the ranks of a host share, and is final when
    backward() returns: clip or unscale it as in a script of one process. With one rank nothing
    happens at all.

    Args:
        optimizer: any torch.optim.Optimizer over dense parameters on the CPU. Those that require no
            gradient now take no part; unfreeze parameters first and wrap then.
        named_parameters: ``model.named_parameters()``; names for messages. Must cover the
            optimizer's parameters.
        op: Average, Sum, Min, Max or Product.
        backward_passes_per_step: gradients accumulate over so many backward passes, of which the
            last reduces them. Divide the loss yourself where you want their mean.
        gradient_predivide_factor: with Average: gradients are divided by it before the sum and
            multiplied by it after, against overflow of 16-bit types.

    Returns:
        An instance of a subclass of the optimizer's class, which shares its state, groups and
        defaults; ``optimizer`` itself may still be used. It has ``synchronize()``,
        ``skip_synchronize()`` and ``no_sync()`` besides.

    Raises:
        ronde.NotInitialized: ``init()`` was not called.
        ronde.InvalidArgument, ronde.Unsupported: an argument of this rank is wrong; the other ranks
            get ronde.Mismatch, which names it.
        ronde.Mismatch: the ranks' parameters differ; the text names them.
        ronde.OutOfMemory: a rank cannot hold the gradients twice; raised on every rank.
    """
    try:
        if hasattr(optimizer, "_ronde_rounds"):
            raise InvalidArgument("the optimizer is wrapped already; wrap it once")
        _check_arguments(op, backward_passes_per_step, gradient_predivide_factor)
        named = _names_of(optimizer, named_parameters)
    except Exception as error:  # also what the caller's own iterables raise
        _decline(str(error))
        raise
    rounds = None
    if session().size > 1:
        reduced = [(name, param) for name, param in named if param.requires_grad]
        frozen = [(name, param) for name, param in named if not param.requires_grad]
        rounds = _Rounds(reduced, op, backward_passes_per_step, gradient_predivide_factor, frozen)
    kind: Any = type(optimizer.__class__.__name__, (_DistributedOptimizer, optimizer.__class__), {})
    wrapped = kind.__new__(kind)
    # One dictionary for both objects: whatever is set on one is set on the other.
    wrapped.__dict__ = optimizer.__dict__
    wrapped._ronde_rounds = rounds
    if rounds is not None:
        wrapped.register_step_pre_hook(rounds.before_step)
        wrapped.register_step_post_hook(rounds.after_step)
    return wrapped
