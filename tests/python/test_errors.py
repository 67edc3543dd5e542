"""Wrong arguments on one rank: the right exception with ranks and values on every rank, and the job
goes on."""

import numpy as np
import pytest
import torch

import ronde
import ronde.numpy as rn
import ronde.torch as rt


def expect(error, words, call):
    with pytest.raises(error) as caught:
        call()
    for word in words:
        assert word in str(caught.value), (word, str(caught.value))
    # The job goes on.
    assert rt.allreduce(torch.ones(2), op=rt.Sum).tolist() == [rt.size()] * 2


def mismatch_worker(name):
    """Rank 1 differs; `name` names the operations, or is None."""
    odd = rt.rank() == 1
    x = torch.ones(4, 5)

    def expect_mismatch(words, call):
        expect(ronde.Mismatch, ["rank 1", *words] + ([name] if name else []), call)

    wide = x.double() if odd else x
    expect_mismatch(["float64", "float32"], lambda: rt.allreduce(wide, name))
    tall = torch.ones(4, 6) if odd else x
    expect_mismatch(["[4,6]", "[4,5]"], lambda: rt.allreduce(tall, name))
    expect_mismatch(["[*,6]", "[*,5]"], lambda: rt.allgather(tall, name))
    op = rt.Max if odd else rt.Sum
    expect_mismatch(["max", "sum"], lambda: rt.allreduce(x, name, op=op))
    factor = 2.0 if odd else 1.0
    expect_mismatch(["2"], lambda: rt.allreduce(x, name, prescale_factor=factor))
    expect_mismatch(["root"], lambda: rt.broadcast(x, 1 if odd else 0, name))
    flat = torch.ones(5) if odd else x
    expect_mismatch(["[5]", "[4,5]"], lambda: rt.broadcast(flat, 0, name))
    group = [x, x] if odd else [x]
    expect_mismatch([], lambda: rt.grouped_allreduce(group, name))

    def kinds():
        return rt.allgather(x, name) if odd else rt.allreduce(x, name)

    expect_mismatch(["allgather", "allreduce"], kinds)


@pytest.mark.parametrize("name", [None, "fc.weight"])
def test_mismatch(job, name):
    job.run(mismatch_worker, name)


def invalid_worker(name):
    """Rank 1 gives what is wrong in itself; the others hear of it."""
    odd = rt.rank() == 1
    x = torch.ones(6, 4)

    def expect_invalid(words, call):
        if odd:
            errors = (ronde.InvalidArgument, ronde.Unsupported)
            expect(errors, words, lambda: call(True))
        else:
            expect(ronde.Mismatch, ["rank 1", *words], lambda: call(False))

    expect_invalid(
        ["finite"], lambda bad: rt.allreduce(x, name, prescale_factor=float("inf") if bad else 1.0)
    )
    expect_invalid(["root"], lambda bad: rt.broadcast(x, 99 if bad else 0, name))
    expect_invalid(["root_rank"], lambda bad: rt.broadcast(x, "zero" if bad else 0, name))
    expect_invalid(["op"], lambda bad: rt.allreduce(x, name, op=17 if bad else rt.Sum))
    splits = [6] + [0] * (rt.size() - 1)
    wrong = [5] + [0] * (rt.size() - 1)
    expect_invalid(["add up to 5"], lambda bad: rt.alltoall(x, wrong if bad else splits, name))
    negative = [7, -1] + [0] * (rt.size() - 2)
    expect_invalid(["7"], lambda bad: rt.alltoall(x, negative if bad else splits, name))
    expect_invalid(["values"], lambda bad: rt.alltoall(x, [6] if bad else splits, name))
    strided = torch.ones(4, 6).t()
    expect_invalid(["contiguous"], lambda bad: rt.allreduce_(strided if bad else x.clone(), name))
    expect_invalid(["sparse"], lambda bad: rt.allreduce(x.to_sparse() if bad else x, name))
    expect_invalid(["meta"], lambda bad: rt.allreduce(x.to("meta") if bad else x, name))
    expect_invalid(["complex64"], lambda bad: rt.allreduce(x.cfloat() if bad else x, name))
    expect_invalid(["ndarray"], lambda bad: rt.allreduce(np.ones(3) if bad else x, name))
    expect_invalid(["str"], lambda bad: rt.allgather("text" if bad else x, name))
    scalar = torch.tensor(1.0)
    expect_invalid(["dimension"], lambda bad: rt.reducescatter(scalar if bad else x, name))
    expect_invalid(["str"], lambda bad: rt.grouped_allreduce([x, "y"] if bad else [x, x], name))


@pytest.mark.parametrize("name", [None, "bad"])
def test_invalid_arguments(job, name):
    job.run(invalid_worker, name)


def declined_worker():
    """Rank 1 cannot wrap its optimizer; the others hear of it instead of waiting."""
    odd = rt.rank() == 1

    def wrap(model, **kwargs):
        rt.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), **kwargs)

    there = torch.nn.Linear(2, 1, device="meta" if odd else "cpu")
    words = ["device meta"] if odd else ["rank 1", "device meta"]
    expect(ronde.Unsupported if odd else ronde.Mismatch, words, lambda: wrap(there))
    here = torch.nn.Linear(2, 1)
    words = ["integer >= 1"] if odd else ["rank 1", "integer >= 1"]
    kwargs = {"backward_passes_per_step": 0} if odd else {}
    expect(ronde.InvalidArgument if odd else ronde.Mismatch, words, lambda: wrap(here, **kwargs))
    wrap(here)


def raises():
    yield torch.ones(2)
    raise KeyError("the caller's own")


def one_sided_worker():
    """What is wrong already in Python leaves no other rank waiting, or one call behind."""
    odd = rt.rank() == 1
    x = torch.ones(2)
    anything = (ronde.Error,)
    for call in (
        lambda: rn.allreduce([[1], [1, 2]] if odd else np.ones(3)),
        lambda: rn.reducescatter([[1], [1, 2]] if odd else np.ones(3)),
        lambda: rt.grouped_allreduce(None if odd else [x]),
        lambda: rt.grouped_allgather(raises() if odd else [x]),
        lambda: rt.broadcast_parameters([x, None] if odd else [x, x]),
        lambda: rt.broadcast(x, root_rank=2**32 if odd else 0),
    ):
        expect(anything, [], call)


def test_one_sided(job):
    job.run(one_sided_worker)


def one_sided_optimizer_worker():
    odd = rt.rank() == 1

    def sgd(dtype=torch.float32):
        model = torch.nn.Linear(2, 1, dtype=dtype)
        return torch.optim.SGD(model.parameters(), lr=0.1), model

    wrapped = rt.DistributedOptimizer(sgd()[0])
    for mine, arguments in (
        (lambda: wrapped, {}),
        (lambda: sgd(torch.complex64)[0], {}),
        (lambda: sgd()[0], {"op": "sum"}),
        (lambda: sgd()[0], {"op": 99}),
        (lambda: sgd()[0], {"gradient_predivide_factor": "2"}),
        (lambda: sgd()[0], {"named_parameters": sgd()[1].parameters()}),
        (lambda: sgd()[0], {"named_parameters": raises()}),
    ):
        if odd:
            with pytest.raises(
                (ronde.InvalidArgument, ronde.Unsupported, KeyError, ronde.Mismatch)
            ):
                rt.DistributedOptimizer(mine(), **arguments)
        else:
            with pytest.raises(ronde.Mismatch, match="rank 1"):
                rt.DistributedOptimizer(sgd()[0])
        assert rt.allreduce(torch.ones(2), op=rt.Sum).tolist() == [rt.size()] * 2


def test_one_sided_optimizer(job):
    job.run(one_sided_optimizer_worker)


def retry_worker():
    shapes = [(3, 7), *[(200_000,)] * 30]
    wrong = [torch.ones(4 if rt.rank() == 1 else 3, 7), *[torch.ones(s) for s in shapes[1:]]]
    for _ in range(3):
        with pytest.raises(ronde.Mismatch, match="rank 1"):
            rt.broadcast_parameters(wrong)
        right = [torch.full(shape, float(rt.rank())) for shape in shapes]
        rt.broadcast_parameters(right)
        assert all(tensor.eq(0).all() for tensor in right)


def test_retry_after_a_mismatch(job):
    job.run(retry_worker)


def unfrozen_worker():
    model = torch.nn.Linear(2, 1)
    model.bias.requires_grad_(False)
    optimizer = rt.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    model.bias.requires_grad_(True)
    model(torch.ones(1, 2)).sum().backward()
    with pytest.raises(ronde.Unsupported, match="parameter 'bias' required no gradient"):
        optimizer.step()
    model.bias.grad = None
    optimizer.step()


def test_unfrozen_parameter(job):
    job.run(unfrozen_worker)


def test_declined_optimizer(job):
    job.run(declined_worker)


def bad_everywhere_worker():
    expect(
        (ronde.InvalidArgument,),
        ["average of bool"],
        lambda: rt.allreduce(torch.ones(3, dtype=torch.bool)),
    )
    expect(ronde.InvalidArgument, ["1023"], lambda: rt.allreduce(torch.ones(1), name="n" * 1024))
    rt.allreduce(torch.ones(1), name="n" * 1023)
    with pytest.raises(TypeError):
        rt.allreduce(torch.ones(1), name=3)
    for wrong in (None, 5, "handle"):
        with pytest.raises(ronde.InvalidArgument, match="not a handle"):
            rt.synchronize(wrong)


def test_bad_everywhere(two):
    two.run(bad_everywhere_worker)


def duplicate_worker():
    rank = rt.rank()
    if rank == 0:
        # Nobody else has submitted it, so it is in flight.
        handle = rt.allreduce_async(torch.ones(2), name="twice")
        with pytest.raises(ronde.InvalidArgument, match="'twice'.*in flight"):
            rt.allreduce_async(torch.ones(2), name="twice")
        with pytest.raises(ronde.InvalidArgument, match="in flight"):
            rt.allreduce(torch.ones(2), name="twice")
        rt.barrier()
    else:
        rt.barrier()
        handle = rt.allreduce_async(torch.ones(2), name="twice")
    assert rt.synchronize(handle).tolist() == [1, 1]
    assert rt.allreduce(torch.ones(2), name="twice").tolist() == [1, 1]


def test_name_in_flight_twice(job):
    job.run(duplicate_worker)


def unpicklable_worker():
    expect(
        ronde.InvalidArgument if rt.rank() == 0 else ronde.Mismatch,
        ["rank 0 cannot pickle"],
        lambda: rt.broadcast_object(lambda: 0, root_rank=0),
    )


def test_unpicklable_object(two):
    two.run(unpicklable_worker)


def timeout_worker():
    if rt.rank() == 0:
        handle = rt.allreduce_async(torch.ones(1), name="late", op=rt.Sum)
        with pytest.raises(ronde.Timeout):
            rt.synchronize(handle, timeout_s=0.05)
        rt.barrier()
    else:
        rt.barrier()
        handle = rt.allreduce_async(torch.ones(1), name="late", op=rt.Sum)
    assert rt.synchronize(handle) == rt.size()


def test_synchronize_with_timeout(two):
    two.run(timeout_worker)


def test_exception_classes():
    assert issubclass(ronde.Error, RuntimeError)
    for name in ronde.errors.__all__:
        assert issubclass(getattr(ronde, name), ronde.Error)
    assert issubclass(ronde.InvalidArgument, ValueError)
    assert issubclass(ronde.NotInitialized, ValueError)
