"""Python objects between ranks."""

from __future__ import annotations

import pickle
from typing import Any

from ronde import _core
from ronde._job import session
from ronde._ops import _BROADCAST


def _broadcast_bytes(
    buffer: bytearray, root: int, name: str | None, invalid: str | None = None
) -> None:
    tensors = [buffer]
    _core.run(session(), _BROADCAST, name, tensors, tensors, 0, 1.0, 1.0, root, None, invalid)


def broadcast_object(obj: Any = None, root_rank: int = 0, name: str | None = None) -> Any:
    """Gives every rank the root's object, by pickle; blocks.

    Args:
        obj: any object that pickle takes; only the root's is looked at.
        root_rank: the rank that sends.
        name: makes the call match by name instead of by position.

    Returns:
        The object itself on the root, a copy elsewhere.

    Raises:
        ronde.InvalidArgument: the root's object cannot be pickled; raised on every rank.
    """
    is_root = session().rank == root_rank
    data = b""
    invalid = None
    if is_root:
        try:
            data = pickle.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # pickle raises whatever the object's own code does
            invalid = f"rank {root_rank} cannot pickle {type(obj).__name__}: {error}"
    length = bytearray(len(data).to_bytes(8, "little"))
    _broadcast_bytes(length, root_rank, None if name is None else name + ".length", invalid)
    buffer = bytearray(data) if is_root else bytearray(int.from_bytes(length, "little"))
    _broadcast_bytes(buffer, root_rank, name)
    return obj if is_root else pickle.loads(buffer)
