"""Runs functions on several ranks: the fixture `job` (2, 3 and 4 ranks) and its `run`.

A job is `ronde run -n N python worker.py`, started once and used by many tests: each `run` sends a
function's name to every rank, which joins, calls it, leaves, and reports. A job in which something
went wrong is thrown away; the next test starts a new one.
"""

from __future__ import annotations

import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, Listener, wait
from typing import Any

import pytest

HERE = pathlib.Path(__file__).parent
START_TIMEOUT_S = 120
RUN_TIMEOUT_S = 120


def ronde_command() -> str:
    command = shutil.which("ronde")
    assert command, "the command `ronde` is not on PATH; run the tests by ./dev test"
    return command


def python_env(**changes: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **changes}


class Job:
    """The ranks of one job, waiting for functions to run."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.broken = False
        self._directory = tempfile.TemporaryDirectory()
        address = os.path.join(self._directory.name, "s")
        key = secrets.token_bytes(16)
        with Listener(address, "AF_UNIX", backlog=size, authkey=key) as listener:
            self._process = subprocess.Popen(
                [ronde_command(), "run", "-n", str(size), sys.executable, str(HERE / "worker.py")],
                env=python_env(HARNESS_ADDRESS=address, HARNESS_KEY=key.hex()),
                start_new_session=True,
            )
            listener._listener._socket.settimeout(1)  # type: ignore[attr-defined]
            ranks: dict[int, Connection] = {}
            end = time.monotonic() + START_TIMEOUT_S
            while len(ranks) < size:
                try:
                    connection = listener.accept()
                except TimeoutError:
                    status = self._process.poll()
                    assert status is None, f"the job ended with status {status} at its start"
                    assert time.monotonic() < end, f"the ranks did not start in {START_TIMEOUT_S} s"
                    continue
                ranks[connection.recv()] = connection
        self._ranks = [ranks[rank] for rank in range(size)]

    def run(self, function: Callable[..., Any], *args: Any, init: bool = True) -> list[Any]:
        """Calls a module-level function of a test file on every rank; the results by rank.

        An exception on a rank fails the test with that rank's traceback.
        """
        self.broken = True  # until every rank has reported
        for connection in self._ranks:
            file = sys.modules[function.__module__].__file__
            connection.send((file, function.__name__, args, init))
        results: dict[int, Any] = {}
        while len(results) < self.size:
            ready = wait([c for r, c in enumerate(self._ranks) if r not in results], RUN_TIMEOUT_S)
            assert ready, f"only ranks {sorted(results)} reported within {RUN_TIMEOUT_S} s"
            for connection in ready:
                rank = self._ranks.index(connection)  # type: ignore[arg-type]
                try:
                    results[rank] = self._ranks[rank].recv()
                except EOFError:
                    pytest.fail(f"rank {rank} ended while it ran {function.__name__}")
        failures = [f"rank {r}:\n{text}" for r, (ok, text) in sorted(results.items()) if not ok]
        assert not failures, "\n".join(failures)
        self.broken = False
        return [results[rank][1] for rank in range(self.size)]

    def close(self) -> None:
        for connection in self._ranks:
            connection.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._directory.cleanup()


_jobs: dict[int, Job] = {}


@pytest.fixture(scope="session", autouse=True)
def _close_jobs() -> Iterator[None]:
    yield
    while _jobs:
        _jobs.popitem()[1].close()


def job_of(size: int) -> Job:
    job = _jobs.get(size)
    if job is not None and job.broken:
        _jobs.pop(size).close()
        job = None
    if job is None:
        job = _jobs[size] = Job(size)
    return job


@pytest.fixture(params=[2, 3, 4], ids=lambda n: f"{n}ranks")
def job(request: pytest.FixtureRequest) -> Job:
    return job_of(request.param)


@pytest.fixture
def two() -> Job:
    return job_of(2)


def launch(size: int, code: str, timeout_s: float = 120, **env: str) -> subprocess.CompletedProcess:
    """Runs a whole script on `size` ranks, for tests of how processes begin and end."""
    return subprocess.run(
        [ronde_command(), "run", "-n", str(size), sys.executable, "-c", code],
        env=python_env(**env),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
