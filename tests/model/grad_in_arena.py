"""Gradients in an arena: what a hook of ours may do to `.grad`, checked against plain PyTorch.

A hook per parameter (register_post_accumulate_grad_hook) copies the fresh gradient into the
parameter's slot of shared memory, which stands in for the arena, and points `.grad` at the slot.
Each claim runs the same user code once plainly and once with the hook, and compares `.grad` and
parameters bit for bit. Run it to see the claims and a hook's cost; pytest collects it too.
"""

import contextlib
import copy
import ctypes
import mmap
import os
import time
from collections.abc import Callable

import numpy as np
import torch
import torch.utils.data
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class GradArena:
    """Slots for the gradients of some parameters, and the hooks that fill them."""

    def __init__(self, params: list[nn.Parameter]) -> None:
        unique = list(dict.fromkeys(params))  # tied parameters are one object, one slot, one hook
        self.memory = mmap.mmap(
            -1, 4 * sum(p.numel() for p in unique)
        )  # shared, like the arena's memfd
        self.address: dict[nn.Parameter, int] = {}
        self.slots: dict[nn.Parameter, Tensor] = {}
        self.copies = 0
        self.in_place = 0
        self.refused: list[str] = []
        self.fired: list[nn.Parameter] = []
        self.callbacks: list[int] = []  # hooks fired before each callback
        self.rounds = 0  # completed backward passes, counted by the engine's callback
        self._task = -1  # the backward pass whose end we asked to be told
        offset = 0
        for p in unique:
            self.slots[p] = self._tensor(p, offset)
            self.address[p] = self.slots[p].data_ptr()
            offset += 4 * p.numel()
            p.register_post_accumulate_grad_hook(self._hook)

    def _tensor(self, p: nn.Parameter, offset: int) -> Tensor:
        # A storage of its own that ends with the slot: deepcopy and torch.save copy whole storages,
        # and a view of one big tensor would make them copy the arena (nor can views be detached in
        # place). The parameter's strides: autograd lays its gradient out alike.
        flat = np.frombuffer(self.memory, np.float32, p.numel(), offset)
        strides = [4 * stride for stride in p.stride()]
        return torch.from_numpy(np.lib.stride_tricks.as_strided(flat, p.size(), strides))

    @torch.no_grad()
    def _hook(self, p: Tensor) -> None:
        task = torch._C._current_graph_task_id()
        if (
            task != self._task
        ):  # first hook of this backward pass; a flag would stay set after an error
            self._task = task
            torch.autograd.Variable._execution_engine.queue_callback(self._end_of_backward)
        self.fired.append(p)
        slot, grad = self.slots[p], p.grad
        if grad.layout != torch.strided:
            self.refused.append("sparse")
        elif grad.requires_grad:  # create_graph=True: a copy would cut the graph
            self.refused.append("create_graph")
        elif grad.data_ptr() == self.address[p]:
            self.in_place += 1  # autograd accumulated into the slot
        elif grad.dtype != slot.dtype:  # model.half() after the arena was made
            self.refused.append("dtype")
        else:
            if (
                slot.data_ptr() != self.address[p]
            ):  # `p.grad.data = ...` moved the tensor we handed out
                offset = self.address[p] - min(self.address.values())
                slot = self.slots[p] = self._tensor(p, offset)
            slot.copy_(grad)
            p.grad = slot
            self.copies += 1

    def _end_of_backward(self) -> None:
        # Called at the end of the pass in which it was queued, which may be one inside another
        # (checkpoint). Inside, a node of the outer pass is being evaluated; there the round is
        # not over.
        self.callbacks.append(len(self.fired))
        if torch._C._current_autograd_node() is not None:
            return
        self.rounds += 1


def make(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 6, 5))


def batch(seed: int = 1) -> Tensor:
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def same(user: Callable[[nn.Module], None], build: Callable[[], nn.Module] = make) -> GradArena:
    """Runs `user` with and without an arena; gradients and parameters must be equal to the bit."""
    plain, hooked = build(), build()
    arena = GradArena(list(hooked.parameters()))
    user(plain)
    user(hooked)
    for a, b in zip(plain.parameters(), hooked.parameters(), strict=True):
        assert torch.equal(a, b)
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            assert torch.equal(a.grad.to_dense(), b.grad.to_dense())
            assert a.grad.stride() == b.grad.stride() or a.grad.is_sparse
    return arena


def in_slots(arena: GradArena) -> bool:
    return all(p.grad is None or p.grad.data_ptr() == s.data_ptr() for p, s in arena.slots.items())


def test_clipping_and_unscale() -> None:
    def user(model: nn.Module) -> None:
        opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for i in range(3):
            opt.zero_grad()
            scaler.scale(model(batch(i)).square().sum()).backward()
            scaler.unscale_(opt)  # in place, on the slot
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(opt)
            scaler.update()

    arena = same(user)
    assert arena.copies == 12 and in_slots(arena)


def steps(set_to_none: bool) -> Callable[[nn.Module], None]:
    def user(model: nn.Module) -> None:
        opt = torch.optim.Adam(model.parameters())
        for i in range(3):
            model(batch(i)).sum().backward()
            opt.step()
            opt.zero_grad(set_to_none=set_to_none)
        model(batch(9)).sum().backward()

    return user


def test_zero_grad_set_to_none() -> None:
    arena = same(steps(True))
    assert (arena.copies, arena.in_place) == (16, 0)


def test_zero_grad_in_place() -> None:
    arena = same(steps(False))
    assert (arena.copies, arena.in_place) == (
        4,
        12,
    )  # after the first step autograd adds into the slot


def test_tied_parameters_fire_once() -> None:
    def build() -> nn.Module:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5))
        model[2].weight = model[0].weight
        return model

    arena = same(lambda m: m(torch.ones(2, 5)).sum().backward(), build)
    assert arena.copies == 3 and len(arena.fired) == 3  # after both uses were summed


def test_retain_graph_and_accumulation() -> None:
    def user(model: nn.Module) -> None:
        loss = model(batch()).square().sum()
        loss.backward(retain_graph=True)
        loss.backward()
        model(batch(2)).sum().backward()

    arena = same(user)
    assert (arena.copies, arena.in_place, arena.rounds) == (4, 8, 3)


def test_user_keeps_a_reference() -> None:
    # Plain PyTorch gives a fresh tensor after set_to_none; with an arena the kept one shows the
    # next gradient.
    model = make()
    GradArena(list(model.parameters()))
    model(batch(1)).sum().backward()
    p = model[3].weight
    kept, copy = p.grad, p.grad.clone()
    p.grad = None
    model(batch(2)).sum().backward()
    assert not torch.equal(kept, copy) and kept.data_ptr() == p.grad.data_ptr()


def test_user_replaces_grad() -> None:
    def user(model: nn.Module) -> None:
        model(batch()).sum().backward()
        for p in model.parameters():
            p.grad = p.grad.clone() * 2  # no longer the slot
        model(batch(2)).sum().backward()

    arena = same(user)
    assert (arena.copies, arena.in_place) == (8, 0) and in_slots(arena)


def test_unused_parameter_keeps_none() -> None:
    def user(model: nn.Module) -> None:
        model[3](torch.ones(1, 144)).sum().backward()

    arena = same(user)
    assert arena.copies == 2


def test_requires_grad_changed() -> None:
    def user(model: nn.Module) -> None:
        model[0].requires_grad_(False)
        model(batch()).sum().backward()
        model[0].requires_grad_(True)  # AccumulateGrad is made anew; the hook survives
        model(batch(2)).sum().backward()

    arena = same(user)
    assert (arena.copies, arena.in_place) == (4, 2)


def test_channels_last() -> None:
    arena = same(
        lambda m: m(batch().to(memory_format=torch.channels_last)).sum().backward(),
        lambda: make().to(memory_format=torch.channels_last),
    )
    assert arena.copies == 4


def test_sparse_is_refused() -> None:
    def build() -> nn.Module:
        torch.manual_seed(0)
        return nn.Embedding(10, 3, sparse=True)

    arena = same(lambda m: m(torch.tensor([1, 2])).sum().backward(), build)
    assert arena.refused == ["sparse"] and arena.copies == 0


def test_create_graph_is_refused() -> None:
    def user(model: nn.Module) -> None:
        model(batch()).square().sum().backward(create_graph=True)
        sum(p.grad.square().sum() for p in model.parameters()).backward()

    arena = same(user)
    assert "create_graph" in arena.refused


def test_preset_view_lets_autograd_accumulate() -> None:
    # The other policy: `.grad` points at a zeroed slot before backward. Right too, but it needs
    # the zeroing, reads the slot once more, and a parameter without a gradient shows zeros
    # instead of None.
    model, plain = make(), make()
    arena = GradArena(list(model.parameters()))
    for p, slot in arena.slots.items():
        p.grad = slot
    model(batch()).sum().backward()
    plain(batch()).sum().backward()
    assert (arena.copies, arena.in_place) == (0, 4)
    for a, b in zip(plain.parameters(), model.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)


def test_autograd_does_not_steal_the_slot() -> None:
    # AccumulateGrad keeps an incoming tensor instead of copying it if nobody else holds it; the
    # slot is held by us, so that a later backward never gets it as a temporary. The fresh
    # gradient, in turn, is freed by our re-pointing.
    model = make()
    arena = GradArena(list(model.parameters()))
    for i in range(4):
        model.zero_grad()
        model(batch(i)).sum().backward()
        assert in_slots(arena)


def test_hooks_run_in_order_of_registration() -> None:
    p = nn.Parameter(torch.ones(3))
    seen: list[int] = []
    p.register_post_accumulate_grad_hook(lambda q: seen.append(q.grad.data_ptr()))
    arena = GradArena([p])
    p.register_post_accumulate_grad_hook(lambda q: seen.append(q.grad.data_ptr()))
    (p * 2).sum().backward()
    slot = arena.slots[p].data_ptr()
    assert (
        seen[0] != slot and seen[1] == slot
    )  # a user's earlier hook sees (and may change) the fresh tensor


def test_end_of_backward_once_per_pass() -> None:
    model = make()
    arena = GradArena(list(model.parameters()))
    for expected in (1, 2):
        model(batch()).sum().backward()
        assert arena.rounds == expected
    torch.autograd.grad(model(batch()).sum(), list(model.parameters()))
    assert arena.rounds == 2  # autograd.grad accumulates nothing, so no hook fires


def checkpointed(last: bool, reentrant: bool) -> GradArena:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    arena = GradArena(list(model.parameters()))
    x = torch.ones(1, 4, requires_grad=True)
    if last:
        y = checkpoint(model[1], model[0](x), use_reentrant=reentrant)
    else:
        y = model[1](checkpoint(model[0], x, use_reentrant=reentrant))
    y.sum().backward()
    assert len(arena.fired) == 4 and arena.rounds == 1
    return arena


def test_end_of_backward_with_checkpoint() -> None:
    for last in (False, True):
        assert checkpointed(last, reentrant=False).callbacks == [4]
    # The callback belongs to the pass whose hook queued it: a reentrant one ends before the outer
    # one goes on.
    assert checkpointed(last=True, reentrant=True).callbacks == [2, 4]
    assert checkpointed(last=False, reentrant=True).callbacks[-1] == 4


def test_reentrant_pass_as_the_last_leaves_the_round_open() -> None:
    # All hooks fire inside; the outer pass has none that could ask for a callback: step() or
    # synchronize() must close.
    model = nn.Linear(4, 4)
    arena = GradArena(list(model.parameters()))
    checkpoint(model, torch.ones(1, 4, requires_grad=True), use_reentrant=True).sum().backward()
    assert arena.callbacks == [2] and arena.rounds == 0


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        raise ValueError("on purpose")


def test_error_in_backward_drops_the_callback() -> None:
    a, b = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    arena = GradArena([a, b])
    with contextlib.suppress(ValueError):
        (Fails.apply(a * 1.0).sum() + (b * 2).sum()).backward()
    assert (len(arena.fired), arena.rounds) == (1, 0)
    ((a * 2).sum() + (b * 2).sum()).backward()
    assert arena.rounds == 1


def test_repointed_data_is_noticed() -> None:
    def user(model: nn.Module) -> None:
        model(batch()).sum().backward()
        for p in model.parameters():
            p.grad.data = p.grad.data * 3  # moves the very tensor that we handed out
        model(batch(2)).sum().backward()

    arena = same(user)
    assert arena.copies == 8
    assert all(p.grad.data_ptr() == a for p, a in arena.address.items())


def test_copying_grad_copies_one_slot() -> None:
    model = make()
    arena = GradArena(list(model.parameters()))
    model(batch()).sum().backward()
    for p in model.parameters():
        clone = copy.deepcopy(p.grad)
        assert not p.grad._is_view() and p.grad.detach_() is p.grad
        assert torch.equal(p.grad, clone) and clone.data_ptr() != p.grad.data_ptr()
        assert clone.untyped_storage().nbytes() == 4 * p.numel()
    assert (
        copy.deepcopy(model)[0].weight.grad is None
    )  # PyTorch copies parameters without gradients
    assert in_slots(arena)


def test_new_dtype_is_refused() -> None:
    model = make()
    arena = GradArena(list(model.parameters()))
    model.double()
    model(batch().double()).sum().backward()
    assert arena.refused == ["dtype"] * 4


def test_forked_child_that_writes_grad_writes_the_parents() -> None:
    # Private memory would be safe. A DataLoader's worker never touches gradients, so that this
    # bites rarely; but it bites silently. MADV_DONTFORK turns it into a fault in the child.
    model = make()
    arena = GradArena(list(model.parameters()))
    for protect in (False, True):
        model.zero_grad()
        model(batch()).sum().backward()
        if protect:
            arena.memory.madvise(mmap.MADV_DONTFORK)
        grad = next(iter(arena.slots.values()))
        pid = os.fork()
        if pid == 0:
            ctypes.memset(grad.data_ptr(), 0, 4)
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        assert (grad.flatten()[0] == 0) == (not protect)
        assert os.WIFSIGNALED(status) == protect


def test_dataloader_workers() -> None:
    model = make()
    arena = GradArena(list(model.parameters()))
    data = [batch(i)[0] for i in range(8)]
    loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=2)
    for x in loader:
        model(x).sum().backward()
    assert arena.rounds == 4 and in_slots(arena)


def microseconds(call: Callable[[], object], before: Callable[[], object]) -> float:
    samples = []
    for _ in range(3000):
        before()
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return sorted(samples)[len(samples) // 2] * 1e6


def main() -> None:
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print("holds:", name[len("test_") :].replace("_", " "))
    p = nn.Parameter(torch.ones(64))
    arena = GradArena([p])
    fresh = torch.ones(64)
    loss = (p * 1.0).sum()
    arena._task = torch._C._current_graph_task_id()  # none is running: nothing to queue

    def renew() -> None:
        p.grad = fresh

    for what, call, before in (
        ("hook that copies 64 floats and re-points", lambda: arena._hook(p), renew),
        ("hook that finds the slot", lambda: arena._hook(p), lambda: None),
        ("p.grad = slot alone", renew, lambda: None),
        ("backward of p * 1 with the hook", lambda: loss.backward(retain_graph=True), renew),
    ):
        print(f"{what}: {microseconds(call, before):.2f} us")


if __name__ == "__main__":
    main()
