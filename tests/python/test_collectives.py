"""Every collective of ronde.torch against torch itself, for every dtype and operator."""

import pytest
import torch

import ronde
import ronde.torch as rt

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
DTYPES = [torch.bool, *INTEGERS, *FLOATS]
SHAPES = [(), (0,), (1,), (7, 3), (1000,), (300_001,)]


def values(rank, dtype, shape):
    """Small integers, so that every dtype adds and multiplies them exactly."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(0, 3, shape, generator=generator).to(dtype)


def reference(tensors, op):
    dtype = tensors[0].dtype
    wide = torch.stack([tensor.to(torch.float64) for tensor in tensors])
    if op == rt.Sum:
        result = wide.sum(0)
    elif op == rt.Average:
        result = wide.sum(0) / len(tensors)
        if not dtype.is_floating_point:
            result = result.floor()
    elif op == rt.Min:
        result = wide.amin(0)
    elif op == rt.Max:
        result = wide.amax(0)
    else:
        result = wide.prod(0)
    return result.to(dtype)


def check(actual, expected):
    assert actual.dtype == expected.dtype, (actual.dtype, expected.dtype)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    # An average need not be exact in 16 bits; torch rounds to nearest as Ronde does.
    assert torch.equal(actual, expected), (actual, expected)


def operators(dtype):
    return [rt.Sum, rt.Min, rt.Max, rt.Product] + ([rt.Average] if dtype != torch.bool else [])


def allreduce_worker():
    rank, size = rt.rank(), rt.size()
    for dtype in DTYPES:
        for shape in SHAPES:
            inputs = [values(r, dtype, shape) for r in range(size)]
            for op in operators(dtype):
                mine = inputs[rank].clone()
                check(rt.allreduce(mine, op=op), reference(inputs, op))
                assert torch.equal(mine, inputs[rank])
                assert rt.allreduce_(mine, op=op, name="in place") is mine
                check(mine, reference(inputs, op))


def test_allreduce(job):
    job.run(allreduce_worker)


def async_worker():
    rank, size = rt.rank(), rt.size()
    inputs = {d: [values(r, d, (100,)) for r in range(size)] for d in INTEGERS + FLOATS}
    # Each rank submits in another order; names match them.
    order = DTYPES[1:]
    order = order[rank:] + order[:rank]
    handles = {d: rt.allreduce_async(inputs[d][rank], name=str(d), op=rt.Sum) for d in order}
    for dtype, handle in handles.items():
        check(rt.synchronize(handle), reference(inputs[dtype], rt.Sum))
        assert rt.poll(handle)
    handles = [rt.allreduce_async_(inputs[d][rank].clone(), op=rt.Max) for d in FLOATS]
    for dtype, handle in zip(FLOATS, handles, strict=True):
        check(rt.synchronize(handle), reference(inputs[dtype], rt.Max))
    # A handle that nobody waits for keeps its memory.
    for _ in range(20):
        rt.allreduce_async(torch.ones(100_000))
    check(rt.allreduce(torch.ones(3), op=rt.Sum), torch.full((3,), float(size)))


def test_async(job):
    job.run(async_worker)


def grouped_worker():
    rank, size = rt.rank(), rt.size()
    specs = [(torch.float32, (5, 2)), (torch.int64, (3,)), (torch.bfloat16, (1000,))]
    inputs = [[values(r, d, s) for d, s in specs] for r in range(size)]
    expected = [reference([inputs[r][i] for r in range(size)], rt.Average) for i in range(3)]
    for result in (
        rt.grouped_allreduce(inputs[rank], name="g"),
        rt.synchronize(rt.grouped_allreduce_async(inputs[rank])),
        rt.grouped_allreduce_([t.clone() for t in inputs[rank]]),
        rt.synchronize(rt.grouped_allreduce_async_([t.clone() for t in inputs[rank]])),
    ):
        for actual, wanted in zip(result, expected, strict=True):
            check(actual, wanted)
    gathered = [torch.cat([inputs[r][i] for r in range(size)]) for i in range(3)]
    for result in (
        rt.grouped_allgather(inputs[rank]),
        rt.synchronize(rt.grouped_allgather_async(inputs[rank], name="h")),
    ):
        for actual, wanted in zip(result, gathered, strict=True):
            check(actual, wanted)
    for result in (
        rt.grouped_reducescatter(inputs[rank]),
        rt.synchronize(rt.grouped_reducescatter_async(inputs[rank])),
    ):
        for actual, wanted in zip(result, expected, strict=True):
            check(actual, wanted.tensor_split(size)[rank])


def test_grouped(job):
    job.run(grouped_worker)


def scale_worker():
    rank, size = rt.rank(), rt.size()
    x = torch.full((10,), float(rank + 1))
    total = size * (size + 1) / 2
    result = rt.allreduce(x, op=rt.Sum, prescale_factor=0.5, postscale_factor=8.0)
    check(result, torch.full((10,), total * 4))
    result = rt.reducescatter(x, op=rt.Sum, prescale_factor=2.0)
    check(result, torch.full((10,), total * 2).tensor_split(size)[rank])


def test_scale_factors(job):
    job.run(scale_worker)


def other_collectives_worker():
    rank, size = rt.rank(), rt.size()
    for dtype in DTYPES:
        for columns in (0, 1, 5):
            # Another number of rows on each rank, none on rank 0.
            inputs = [values(r, dtype, (3 * r, columns)) for r in range(size)]
            check(rt.allgather(inputs[rank]), torch.cat(inputs))
            check(rt.synchronize(rt.allgather_async(inputs[rank])), torch.cat(inputs))

            rows = 3 * size + 1  # does not divide
            inputs = [values(r, dtype, (rows, columns)) for r in range(size)]
            part = reference(inputs, rt.Sum).tensor_split(size)[rank]
            check(rt.reducescatter(inputs[rank], op=rt.Sum), part)
            check(rt.synchronize(rt.reducescatter_async(inputs[rank], op=rt.Sum)), part)

            # Rank r sends r + s rows to rank s.
            splits = [[r + s for s in range(size)] for r in range(size)]
            inputs = [values(r, dtype, (sum(splits[r]), columns)) for r in range(size)]
            wanted = torch.cat([inputs[r].split(splits[r])[rank] for r in range(size)])
            received, counts = rt.alltoall(inputs[rank], splits=splits[rank])
            check(received, wanted)
            assert counts.tolist() == [r + rank for r in range(size)]
            handle = rt.alltoall_async(inputs[rank], splits=torch.tensor(splits[rank]), name="a")
            check(rt.synchronize(handle)[0], wanted)

        equal = [values(r, dtype, (2 * size,)) for r in range(size)]
        wanted = torch.cat([equal[r].chunk(size)[rank] for r in range(size)])
        check(rt.alltoall(equal[rank]), wanted)
        for root in range(size):
            check(rt.broadcast(equal[rank], root), equal[root])
            check(rt.synchronize(rt.broadcast_async(equal[rank], root, name="b")), equal[root])
            mine = equal[rank].clone()
            assert rt.broadcast_(mine, root) is mine
            check(mine, equal[root])
            mine = equal[rank].clone()
            check(rt.synchronize(rt.broadcast_async_(mine, root)), equal[root])
    rt.barrier()


def test_other_collectives(job):
    job.run(other_collectives_worker)


def strided_worker():
    rank, size = rt.rank(), rt.size()
    base = torch.arange(12.0).reshape(3, 4) + rank
    total = sum(torch.arange(12.0).reshape(3, 4).t() + r for r in range(size))
    check(rt.allreduce(base.t(), op=rt.Sum), total)
    check(rt.allreduce(base.t(), op=rt.Sum).contiguous(), total.contiguous())
    check(rt.broadcast(base[:, ::2], 1), torch.arange(12.0).reshape(3, 4)[:, ::2] + 1)
    # In place is allowed where the memory is dense, as a slice of rows is.
    rt.allreduce_(base[1:], op=rt.Max)
    check(base[1:], torch.arange(12.0).reshape(3, 4)[1:] + size - 1)
    deep = torch.ones((2,) * 9 + (3,))  # more dimensions than the core keeps apart
    check(rt.allgather(deep), torch.ones((2 * size,) + (2,) * 8 + (3,)))


def test_strided(job):
    job.run(strided_worker)


def large_worker():
    rank, size = rt.rank(), rt.size()
    x = torch.full((5_000_000,), float(rank + 1))
    rt.allreduce_(x, op=rt.Sum)
    assert x.min() == x.max() == size * (size + 1) / 2
    versions = x._version
    rt.allreduce_(x)
    assert x._version > versions  # autograd sees the change


def test_large(job):
    job.run(large_worker)


def objects_worker():
    size = rt.size()
    for root in range(size):
        sent = {"rank": rt.rank(), "list": list(range(10_000))}
        got = rt.broadcast_object(sent, root_rank=root, name=f"object {root}")
        assert got == {"rank": root, "list": list(range(10_000))}
    assert rt.broadcast_object(None) is None


def test_objects(job):
    job.run(objects_worker)


def fused_worker():
    """Named groups of several types beside ones of one type, all in flight at once."""
    rank, size = rt.rank(), rt.size()
    specs = [(torch.float32, (100,)), (torch.int64, (3,))]
    handles = []
    for i in range(20):
        wanted = specs if i % 2 else specs[:1]
        mine = [values(rank + i, d, s) for d, s in wanted]
        handles.append((i, wanted, rt.grouped_allreduce_async(mine, name=f"g{i}", op=rt.Sum)))
    for i, wanted, handle in handles:
        for actual, (dtype, shape) in zip(rt.synchronize(handle), wanted, strict=True):
            check(actual, reference([values(r + i, dtype, shape) for r in range(size)], rt.Sum))


def test_fused_groups(job):
    job.run(fused_worker)


@pytest.mark.parametrize("call", ["allreduce", "broadcast", "allgather"])
def test_negated_view(call, two):
    two.run(negated_worker, call)


def negated_worker(call):
    """Its memory has the values with the other sign."""
    view = torch._neg_view(torch.tensor([1.0, 2.0]))
    arguments = (0,) if call == "broadcast" else ()
    assert getattr(rt, call)(view, *arguments)[:2].tolist() == [-1.0, -2.0]
    with pytest.raises(ronde.InvalidArgument, match="is a negated view"):
        rt.allreduce_(view)
