"""Ronde: collective communication for data-parallel training.

``ronde.torch`` has the collectives on PyTorch tensors and ``DistributedOptimizer``;
``ronde.numpy`` has the same collectives on NumPy arrays and needs no PyTorch. Start the ranks
with ``ronde run -n N python train.py``; a script started without it is a job of size 1.
"""

from ronde._core import __version__
from ronde.errors import (
    Aborted,
    Error,
    Internal,
    InvalidArgument,
    Mismatch,
    NotInitialized,
    OutOfMemory,
    PeerLost,
    Timeout,
    Unsupported,
)

__all__ = [
    "Aborted",
    "Error",
    "Internal",
    "InvalidArgument",
    "Mismatch",
    "NotInitialized",
    "OutOfMemory",
    "PeerLost",
    "Timeout",
    "Unsupported",
    "__version__",
]
