"""This process's membership in its job, shared by ronde.torch and ronde.numpy."""

from __future__ import annotations

import atexit
import sys

from ronde import _core
from ronde.errors import NotInitialized

_session: _core.Session | None = None
# Counts what must be named alike on all ranks, from 0 in each job.
_sets_declared = 0


def session() -> _core.Session:
    """The current membership; raises NotInitialized when there is none."""
    if _session is None:
        raise NotInitialized("call ronde.torch.init() first (or ronde.numpy.init())")
    return _session


def next_set_name() -> str:
    """A name for the next declared set: the same on every rank that declares in the same order."""
    global _sets_declared
    _sets_declared += 1
    return f"optimizer.{_sets_declared - 1}"


def init() -> None:
    """Joins the job that ``ronde run`` started, or a job of size 1 without it.

    Blocks until every rank has called it. Does nothing when this process is a member already.
    Leaves the job at exit, as ``shutdown()`` does.

    Raises:
        ronde.InvalidArgument: a ``RONDE_*`` environment variable is not allowed.
        ronde.Timeout: a rank did not come within ``RONDE_START_TIMEOUT_S``; the text names it.
        ronde.Mismatch: a rank has another version or other rules.
    """
    global _session, _sets_declared
    if _session is not None:
        return
    _session = _core.open()
    _sets_declared = 0
    atexit.register(_at_exit)


def shutdown() -> None:
    """Leaves the job; ``init()`` may be called again. Does nothing when not a member.

    Operations in flight fail with ronde.Aborted; ranks that still wait for this one are told.
    """
    global _session
    if _session is None:
        return
    atexit.unregister(_at_exit)
    leaving, _session = _session, None
    leaving.shutdown()


def _at_exit() -> None:
    """Leaves the job, except after an uncaught exception.

    That is a failure and no farewell: the others learn of it when this process has ended, and so
    the launcher sees who was first.
    """
    if _session is not None and hasattr(sys, "last_value") and not hasattr(sys, "ps1"):
        _session.abandon()
    else:
        shutdown()


def is_initialized() -> bool:
    """Whether this process is a member of a job."""
    return _session is not None


def rank() -> int:
    """This process's rank in the job, 0 to size() - 1."""
    return session().rank


def size() -> int:
    """The number of ranks in the job."""
    return session().size


def local_rank() -> int:
    """This process's rank among those of its host, 0 to local_size() - 1."""
    return session().local_rank


def local_size() -> int:
    """The number of ranks on this host."""
    return session().local_size


def cross_rank() -> int:
    """This host's number among the hosts that have a rank of this local rank."""
    return session().cross_rank


def cross_size() -> int:
    """The number of hosts that have a rank of this local rank."""
    return session().cross_size
