"""The exceptions of Ronde: one class for each code of the C++ core.

Operation errors (InvalidArgument, Mismatch, Unsupported, NotInitialized) fail one operation, on
every rank that takes part, and the job goes on. Group errors (PeerLost, Timeout, Aborted,
OutOfMemory, Internal) end the job: every later call raises the first of them.
"""

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
]


class Error(RuntimeError):
    """Base of all of Ronde's exceptions."""


class InvalidArgument(Error, ValueError):
    """An argument is not allowed; the text names it, its value and what is allowed."""


class Mismatch(Error):
    """Ranks disagree about an operation; the text names ranks and values."""


class Unsupported(Error):
    """What was asked for exists, but not here: a dtype, a device, a layout."""


class NotInitialized(Error, ValueError):
    """Called before init(), after shutdown(), or in a forked child."""


class PeerLost(Error):
    """Another rank ended or died; the text names it."""


class Timeout(Error):
    """A deadline passed; the text names the ranks that were missing."""


class Aborted(Error):
    """The job was ended, by shutdown() or by another rank."""


class OutOfMemory(Error):
    """Memory could not be had; the text names how much and for what."""


class Internal(Error):
    """A defect of Ronde or a failed system call."""
