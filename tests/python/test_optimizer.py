"""DistributedOptimizer against averaging by hand in one process, on real small models."""

import contextlib
import copy
import gc
import pickle
import weakref

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import ronde
import ronde.torch as rt


def convnet():
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3).to(memory_format=torch.channels_last),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last),
        torch.nn.Flatten(),
        torch.nn.Linear(6 * 16, 10),
    )


def batch(rank, step):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(4, 1, 8, 8, generator=generator), torch.randint(
        0, 10, (4,), generator=generator
    )


def loss_of(model, rank, step):
    x, y = batch(rank, step)
    return torch.nn.functional.cross_entropy(model(x), y)


def tree_sum(tensors):
    """Ronde's order of addition: pairs over rank index."""
    if len(tensors) == 1:
        return tensors[0]
    middle = 1 << (len(tensors) - 1).bit_length() - 1
    return tree_sum(tensors[:middle]) + tree_sum(tensors[middle:])


def averaged_gradients(models, losses):
    """What every rank's .grad is to be: computed in one process, rank by rank."""
    for model, loss in zip(models, losses, strict=True):
        model.zero_grad()
        loss(model).backward()
    result = []
    for params in zip(*[model.parameters() for model in models], strict=True):
        result.append(tree_sum([param.grad for param in params]) / len(models))
    return result


def equal_on_all_ranks(model):
    for name, tensor in model.state_dict().items():
        if "running" in name or "num_batches" in name:
            continue  # batch statistics are of each rank's own data
        gathered = rt.allgather(tensor.reshape(1, -1))
        assert all(torch.equal(row, gathered[0]) for row in gathered), name


def training_worker(kind, set_to_none):
    rank, size = rt.rank(), rt.size()
    make = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
        "adam": lambda p: torch.optim.AdamW(p, lr=0.01),
    }[kind]
    model = convnet()
    optimizer = rt.DistributedOptimizer(make(model.parameters()), model.named_parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    twins = [convnet() for _ in range(size)]  # every rank plays all ranks
    twin_optimizer = make(twins[0].parameters())
    twin_scheduler = torch.optim.lr_scheduler.StepLR(twin_optimizer, 2)
    for step in range(5):
        optimizer.zero_grad(set_to_none=set_to_none)
        loss_of(model, rank, step).backward()
        expected = averaged_gradients(
            twins, [lambda m, r=r, s=step: loss_of(m, r, s) for r in range(size)]
        )
        for param, gradient in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(param.grad, gradient, rtol=1e-6, atol=1e-7)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        for param, gradient in zip(twins[0].parameters(), expected, strict=True):
            param.grad = gradient
        twin_norm = torch.nn.utils.clip_grad_norm_(twins[0].parameters(), 0.5)
        torch.testing.assert_close(norm, twin_norm)
        optimizer.step()
        twin_optimizer.step()
        scheduler.step()
        twin_scheduler.step()
        for twin in twins[1:]:
            for mine, first in zip(twin.parameters(), twins[0].parameters(), strict=True):
                mine.data.copy_(first)
        equal_on_all_ranks(model)
    for mine, theirs in zip(model.parameters(), twins[0].parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_training(job, kind, set_to_none):
    job.run(training_worker, kind, set_to_none)


def linear(value=1.0, dtype=torch.float32):
    model = torch.nn.Linear(3, 1, bias=False, dtype=dtype)
    torch.nn.init.constant_(model.weight, value)
    return model


def wrap(model, **kwargs):
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return rt.DistributedOptimizer(optimizer, model.named_parameters(), **kwargs)


def run_backward(model, value):
    dtype = next(model.parameters()).dtype
    model(torch.full((1, 3), float(value), dtype=dtype)).sum().backward()


def numbers(size):
    """Sum and mean of rank + 1."""
    return size * (size + 1) / 2, (size + 1) / 2


def accumulation_worker():
    rank, size = rt.rank(), rt.size()
    total, mean = numbers(size)
    model = linear()
    optimizer = wrap(model, backward_passes_per_step=3)
    for _ in range(3):
        optimizer.zero_grad()
        for done in range(3):
            run_backward(model, rank + 1)
            local = done < 2
            expected = (rank + 1) * (done + 1) if local else 3 * mean
            assert model.weight.grad.tolist() == [[expected] * 3]
        optimizer.step()

    model = linear()
    optimizer = wrap(model, op=rt.Sum)
    with optimizer.no_sync():
        run_backward(model, rank + 1)
        run_backward(model, rank + 1)
    assert model.weight.grad.tolist() == [[2.0 * (rank + 1)] * 3]
    run_backward(model, rank + 1)
    assert model.weight.grad.tolist() == [[3 * total] * 3]
    optimizer.step()
    # step() after fewer passes reduces what there is.
    optimizer.zero_grad()
    with optimizer.no_sync():
        run_backward(model, rank + 1)
    optimizer.step()
    assert model.weight.grad.tolist() == [[total] * 3]


def test_accumulation(job):
    job.run(accumulation_worker)


def operators_worker():
    rank, size = rt.rank(), rt.size()
    total, mean = numbers(size)
    cases = [(rt.Sum, total), (rt.Average, mean), (rt.Min, 1), (rt.Max, size)]
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for op, expected in cases:
            model = linear(dtype=dtype)
            optimizer = wrap(model, op=op)
            run_backward(model, rank + 1)
            optimizer.step()
            assert model.weight.grad.dtype == dtype
            assert model.weight.grad.tolist() == [[expected] * 3]
    model = linear()
    optimizer = wrap(model, gradient_predivide_factor=4.0)
    run_backward(model, rank + 1)
    optimizer.step()
    assert model.weight.grad.tolist() == [[mean] * 3]


def test_operators_and_dtypes(job):
    job.run(operators_worker)


def second_backward_worker():
    rank, size = rt.rank(), rt.size()
    _, mean = numbers(size)
    model = linear()
    optimizer = wrap(model)
    loss = model(torch.full((1, 3), rank + 1.0)).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert model.weight.grad.tolist() == [[2 * mean] * 3]
    optimizer.step()
    # Summing a sum again would be wrong, and is refused everywhere.
    model = linear()
    optimizer = wrap(model, op=rt.Sum)
    run_backward(model, 1)
    with pytest.raises(ronde.Mismatch, match="backward_passes_per_step"):
        run_backward(model, 1)
    optimizer.zero_grad()
    run_backward(model, 1)
    assert model.weight.grad.tolist() == [[size] * 3]


def test_second_backward(job):
    job.run(second_backward_worker)


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.used = linear()
        self.sometimes = linear()
        self.never = linear()

    def forward(self, x, both):
        return self.used(x) + self.sometimes(x) if both else self.used(x)


def unused_worker():
    rank, size = rt.rank(), rt.size()
    _, mean = numbers(size)
    model = Branches()
    optimizer = wrap(model)
    for odd in (0, size - 1):
        for set_to_none in (True, False):
            optimizer.zero_grad(set_to_none=set_to_none)
            model(torch.full((1, 3), rank + 1.0), both=rank == odd).sum().backward()
            assert model.used.weight.grad.tolist() == [[mean] * 3]
            # One rank's contribution, divided by all: on ranks that did not use it too.
            grad = model.sometimes.weight.grad
            torch.testing.assert_close(grad, torch.full((1, 3), (odd + 1) / size))
            assert model.never.weight.grad is None
            optimizer.step()
            equal_on_all_ranks(model)
    # A rank whose loss depends on nothing takes part by step().
    optimizer.zero_grad()
    if rank == 0:
        run_backward(model.used, size)
    optimizer.step()
    assert model.used.weight.grad.tolist() == [[1.0] * 3]
    equal_on_all_ranks(model)
    optimizer.zero_grad()
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        optimizer.step()
    assert all(param.grad is None for param in model.parameters())


def test_unused_parameters(job):
    job.run(unused_worker)


def tied_worker():
    rank, size = rt.rank(), rt.size()
    _, mean = numbers(size)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    torch.nn.init.eye_(model[0].weight)
    optimizer = wrap(model)
    model(torch.full((1, 3), rank + 1.0)).sum().backward()
    assert model[0].weight.grad.tolist() == [[2 * mean] * 3] * 3
    optimizer.step()
    equal_on_all_ranks(model)


def test_tied_parameters(job):
    job.run(tied_worker)


def closure_worker():
    rank, size = rt.rank(), rt.size()
    torch.manual_seed(2)
    x, y = torch.randn(8 * size, 3), torch.randn(8 * size, 1)
    mine = slice(8 * rank, 8 * rank + 8)
    model, twin = linear(dtype=torch.float64), linear(dtype=torch.float64)
    optimizer = rt.DistributedOptimizer(torch.optim.LBFGS(model.parameters()))
    twin_optimizer = torch.optim.LBFGS(twin.parameters())

    def step(m, opt, rows):
        def closure():
            opt.zero_grad()
            loss = ((m(x[rows].double()) - y[rows]) ** 2).mean()
            loss.backward()
            # LBFGS decides by the loss how often it calls, so all ranks need the same.
            return rt.allreduce(loss.detach()) if m is model else loss

        opt.step(closure)

    for _ in range(2):
        step(model, optimizer, mine)
        step(twin, twin_optimizer, slice(None))
    torch.testing.assert_close(model.weight, twin.weight)
    equal_on_all_ranks(model)


def test_closure(job):
    job.run(closure_worker)


def scaler_worker():
    """As with GradScaler: the loss is scaled, unscale_ sees averages, inf skips the step."""
    rank, size = rt.rank(), rt.size()
    _, mean = numbers(size)
    model = linear(value=0.0)
    optimizer = wrap(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    for step in range(3):
        optimizer.zero_grad()
        value = float("inf") if step == 1 and rank == 0 else rank + 1.0
        scaler.scale(model(torch.full((1, 3), value)).sum()).backward()
        scaler.unscale_(optimizer)
        if step != 1:
            assert model.weight.grad.tolist() == [[mean] * 3]
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 512.0
    assert model.weight.tolist() == [[-2 * mean] * 3]


def test_grad_scaler(job):
    job.run(scaler_worker)


def poison_worker():
    rank = rt.rank()
    model = torch.nn.Sequential(linear(), torch.nn.Linear(1, 1))
    optimizer = wrap(model)
    if rank == 1:
        model[0].weight.register_post_accumulate_grad_hook(lambda p: None)
        model[0].weight.data = model[0].weight.data.double()
        x = torch.ones(1, 3, dtype=torch.float64)
        call = lambda: model[1](model[0](x).float()).sum().backward()  # noqa: E731
    else:
        call = lambda: model(torch.ones(1, 3)).sum().backward()  # noqa: E731
    with pytest.raises(ronde.Mismatch, match=r"0.weight.*rank 1.*float64.*float32"):
        call()
    # The other parameters have their gradients, and the job goes on.
    assert model[1].weight.grad is not None
    model[0].weight.data = model[0].weight.data.float()
    optimizer.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()

    table = torch.nn.Embedding(4, 2, sparse=rank == 1)
    optimizer = rt.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=0.1))
    with pytest.raises(ronde.Mismatch, match=r"rank 1.*sparse"):
        table(torch.tensor([1])).sum().backward()
    rt.barrier()


def test_wrong_gradient_on_one_rank(job):
    job.run(poison_worker)


def failing_worker():
    """A backward pass that dies half-way on one rank costs that round, and no more."""

    class Bomb(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("bomb")

    rank, size = rt.rank(), rt.size()
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
    rt.broadcast_parameters(model.named_parameters())
    optimizer = wrap(model)
    x = torch.ones(1, 3)
    if rank == 1:
        with pytest.raises(ValueError, match="bomb"):
            model[1](Bomb.apply(model[0](x))).sum().backward()
        optimizer.synchronize()  # ends the round that the failed pass began
    else:
        model(x).sum().backward()
    optimizer.zero_grad()
    (model(x).sum() * (rank + 1)).backward()
    assert model[1].bias.grad == numbers(size)[1]
    optimizer.step()
    equal_on_all_ranks(model)


def test_backward_that_fails(job):
    job.run(failing_worker)


def checkpoint_worker():
    rank, size = rt.rank(), rt.size()
    for reentrant in (True, False):
        model = convnet()
        optimizer = wrap(model)
        twins = [convnet() for _ in range(size)]

        def checkpointed(m, r, reentrant=reentrant):
            x, y = batch(r, 0)
            hidden = checkpoint(m[:3], x.requires_grad_(), use_reentrant=reentrant)
            hidden = checkpoint(m[3:5], hidden, use_reentrant=reentrant)
            return torch.nn.functional.cross_entropy(m[5](hidden), y)

        checkpointed(model, rank).backward()
        expected = averaged_gradients(
            twins, [lambda m, r=r: checkpointed(m, r) for r in range(size)]
        )
        for param, gradient in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(param.grad, gradient, rtol=1e-6, atol=1e-7)
        optimizer.step()


def test_checkpointing(job):
    job.run(checkpoint_worker)


def declaration_worker():
    """Ranks that wrap different models hear of it, and go on."""
    odd = rt.rank() == 1
    with pytest.raises(ronde.Mismatch, match="rank 1"):
        wrap(torch.nn.Linear(3, 2 if odd else 1))
    with pytest.raises(ronde.Mismatch, match="rank 1"):
        wrap(linear(dtype=torch.float64 if odd else torch.float32))
    with pytest.raises(ronde.Mismatch, match="rank 1"):
        wrap(linear(), op=rt.Sum if odd else rt.Average)
    wrap(linear())
    # Two optimizers, as of a GAN, in turns.
    first, second = linear(), linear()
    one, two = wrap(first), wrap(second)
    for _ in range(3):
        one.zero_grad()
        run_backward(first, 1)
        one.step()
        two.zero_grad()
        (first(torch.ones(1, 3)) * second(torch.ones(1, 3))).sum().backward()
        two.step()
    equal_on_all_ranks(first)
    equal_on_all_ranks(second)


def test_declaration(job):
    job.run(declaration_worker)


def lifetime_worker():
    """Hooks go with the optimizer; nothing keeps a dropped model."""
    model = linear()
    optimizer = wrap(model)
    run_backward(model, 1)
    del optimizer
    gc.collect()
    assert not model.weight._post_accumulate_grad_hooks
    run_backward(model, 1)
    wrap(model)  # again, after the first has gone
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None
    # The gradient outlives set, model and job.
    model = linear()
    optimizer = wrap(model)
    run_backward(model, 2)
    kept = model.weight.grad
    del optimizer, model
    rt.shutdown()
    gc.collect()
    assert kept.tolist() == [[2.0] * 3]


def test_lifetime(job):
    job.run(lifetime_worker)


def gradient_tensor_worker():
    """What users do to a gradient that they find."""
    rank, size = rt.rank(), rt.size()
    _, mean = numbers(size)
    model = torch.nn.Sequential(linear(), torch.nn.Linear(1, 4))
    optimizer = wrap(model)

    def round_is_right():
        optimizer.zero_grad()
        run_backward(model[0], rank + 1)
        assert model[0].weight.grad.tolist() == [[mean] * 3]

    run_backward(model, rank + 1)
    grad = model[0].weight.grad
    assert not grad._is_view()
    assert grad.untyped_storage().nbytes() == 12  # so a copy does not take the whole arena along
    grad.detach_()
    round_is_right()
    model[0].weight.grad.data = torch.full((1, 3), 7.0)
    round_is_right()
    model[0].weight.grad = torch.full((1, 3), 7.0)
    round_is_right()
    model[0].weight.grad.share_memory_()
    round_is_right()
    optimizer.zero_grad()
    with pytest.raises(ronde.Mismatch, match="create_graph"):
        model(torch.ones(1, 3)).sum().backward(create_graph=True)
    round_is_right()


@pytest.mark.filterwarnings("ignore:Using backward")
def test_gradient_tensor(two):
    two.run(gradient_tensor_worker)


def module_to_worker():
    """Moving a model re-points the .grad that it finds; the next round is right again."""
    model = linear()
    optimizer = wrap(model)
    run_backward(model, 1)
    model.double()
    model.float()
    for _ in range(2):
        optimizer.zero_grad()
        run_backward(model, rt.rank() + 1)
        assert model.weight.grad.tolist() == [[numbers(rt.size())[1]] * 3]


def test_module_to(two):
    two.run(module_to_worker)


def state_worker():
    rank, size = rt.rank(), rt.size()
    torch.manual_seed(rank)
    model = convnet()
    with torch.no_grad():
        for param in model.parameters():
            param.add_(rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1 * (rank + 1))
    root = size - 1
    if rank == root:
        loss_of(model, 0, 0).backward()
        optimizer.step()
    rt.broadcast_parameters(model.state_dict(), root_rank=root)
    rt.broadcast_optimizer_state(optimizer, root_rank=root)
    equal_on_all_ranks(model)
    assert optimizer.param_groups[0]["lr"] == 0.1 * size
    for param in model.parameters():
        for key, value in optimizer.state[param].items():
            gathered = rt.allgather(value.reshape(1, -1))
            assert all(torch.equal(row, gathered[0]) for row in gathered), key
    # Lists without names, and tensors that are no parameters.
    tensors = [torch.full((2,), float(rank)), torch.full((3, 2), rank).t()]
    rt.broadcast_parameters(tensors, root_rank=1)
    assert tensors[0].tolist() == [1, 1] and tensors[1].tolist() == [[1] * 3] * 2
    with pytest.raises(ronde.Mismatch, match=r"'broadcast_parameters.w'.*rank 1"):
        rt.broadcast_parameters({"w": torch.ones(3 if rank == 1 else 2)})
    with pytest.raises(ronde.InvalidArgument, match="parameters.x': tensor 0 is a int"):
        rt.broadcast_parameters({"x": 3})


def test_broadcast_of_states(job):
    job.run(state_worker)


# In a job of size 1.


@pytest.fixture
def alone():
    rt.init()
    yield
    rt.shutdown()


@pytest.mark.usefixtures("alone")
def test_alone_nothing_happens():
    model, twin = convnet(), convnet()
    optimizer = rt.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )
    twin_optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
    assert not any(param._post_accumulate_grad_hooks for param in model.parameters())
    for step in range(3):
        for m, o in ((model, optimizer), (twin, twin_optimizer)):
            o.zero_grad(set_to_none=True)
            with o.no_sync() if m is model else contextlib.nullcontext():
                loss_of(m, 0, step).backward()
            o.step()
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            pass
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.usefixtures("alone")
def test_is_the_optimizer():
    model = convnet()
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = rt.DistributedOptimizer(inner, model.named_parameters())
    assert isinstance(optimizer, torch.optim.SGD)
    assert type(optimizer).__name__ == "SGD"
    assert optimizer.param_groups is inner.param_groups
    assert optimizer.state is inner.state
    assert optimizer.defaults is inner.defaults
    loss_of(model, 0, 0).backward()
    optimizer.step()
    fresh = torch.optim.SGD(model.parameters(), lr=9.9)
    fresh.load_state_dict(optimizer.state_dict())
    assert fresh.param_groups[0]["lr"] == 0.1
    optimizer.load_state_dict(fresh.state_dict())
    assert str(optimizer.state_dict()) == str(inner.state_dict())


@pytest.mark.usefixtures("alone")
def test_is_not_copied():
    optimizer = rt.DistributedOptimizer(torch.optim.SGD(linear().parameters(), lr=0.1))
    for how in (copy.deepcopy, copy.copy, pickle.dumps):
        with pytest.raises(ronde.Unsupported, match=r"state_dict\(\)"):
            how(optimizer)


@pytest.mark.usefixtures("alone")
def test_wrong_arguments():
    model = linear()
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    for error, text, kwargs in [
        (ronde.InvalidArgument, "lacks parameter 0", {"named_parameters": []}),
        (ronde.InvalidArgument, "integer >= 1", {"backward_passes_per_step": 0}),
        (ronde.InvalidArgument, "finite and > 0", {"gradient_predivide_factor": 0.0}),
        (
            ronde.InvalidArgument,
            "op=Average",
            {"gradient_predivide_factor": 2.0, "op": rt.Sum},
        ),
        (
            ronde.InvalidArgument,
            "'w' twice",
            {"named_parameters": [("w", model.weight), ("w", torch.nn.Parameter(torch.ones(1)))]},
        ),
    ]:
        with pytest.raises(error, match=text):
            rt.DistributedOptimizer(plain, **kwargs)
    meta = torch.optim.SGD(torch.nn.Linear(1, 1, device="meta").parameters(), lr=0.1)
    with pytest.raises(ronde.Unsupported, match="meta"):
        rt.DistributedOptimizer(meta)
    with pytest.raises(ronde.InvalidArgument, match="wrapped already"):
        rt.DistributedOptimizer(rt.DistributedOptimizer(plain))
