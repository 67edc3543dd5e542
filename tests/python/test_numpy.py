"""ronde.numpy: the same collectives, without PyTorch."""

import subprocess
import sys

import numpy as np
from conftest import python_env

import ronde.numpy as rn

DTYPES = ["?", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8"]


def worker():
    rank, size = rn.rank(), rn.size()
    for dtype in DTYPES:
        inputs = [np.arange(7 * size).astype(dtype) + np.ones(1, dtype) for _ in range(size)]
        expected = np.max(np.stack(inputs), axis=0)
        result = rn.allreduce(inputs[rank], op=rn.Max)
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected)
        np.testing.assert_array_equal(rn.allgather(inputs[rank]), np.concatenate(inputs))
        np.testing.assert_array_equal(rn.broadcast(inputs[rank], size - 1), inputs[size - 1])
        received, counts = rn.alltoall(inputs[rank], splits=[7] * size)
        assert counts.tolist() == [7] * size
        np.testing.assert_array_equal(
            received, np.concatenate([x[7 * rank : 7 * rank + 7] for x in inputs])
        )
        part = rn.reducescatter(inputs[rank], op=rn.Max)
        np.testing.assert_array_equal(part, expected[7 * rank : 7 * rank + 7])
    x = np.full((3, 2), float(rank))
    assert rn.allreduce_(x, op=rn.Sum) is x
    assert (x == size * (size - 1) / 2).all()
    assert rn.synchronize(rn.allreduce_async(rank, op=rn.Sum)) == size * (size - 1) // 2
    np.testing.assert_array_equal(
        rn.allreduce(x.T + rank, op=rn.Min), np.full((2, 3), size * (size - 1) / 2)
    )
    assert rn.broadcast_object({"from": rank}, 1) == {"from": 1}
    rn.barrier()


def test_numpy(job):
    job.run(worker)


def test_needs_no_torch():
    code = (
        "import sys, ronde.numpy as rn; rn.init(); rn.allgather([1.0]); rn.broadcast_object({});"
        "rn.shutdown(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], env=python_env(), check=True, timeout=60)
