"""Ronde for PyTorch. Four lines make a training script data-parallel::

    import ronde.torch as ronde

    ronde.init()
    optimizer = ronde.DistributedOptimizer(optimizer, model.named_parameters())
    ronde.broadcast_parameters(model.state_dict(), root_rank=0)
    sampler = DistributedSampler(dataset, num_replicas=ronde.size(), rank=ronde.rank())

Start it with ``ronde run -n N python train.py``.
"""

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
    Handle,
    Max,
    Min,
    Product,
    ReduceOp,
    Sum,
    barrier,
    poll,
    synchronize,
)
from ronde.torch._tensors import (
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    reducescatter,
    reducescatter_async,
)
from ronde.torch.optimizer import DistributedOptimizer
from ronde.torch.state import broadcast_optimizer_state, broadcast_parameters

__all__ = [
    "Average",
    "DistributedOptimizer",
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
    "broadcast_optimizer_state",
    "broadcast_parameters",
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
