"""How processes join, leave, fork and die."""

import os
import re
import subprocess
import sys
import time

import pytest
import torch
from conftest import launch, python_env, ronde_command

import ronde
import ronde.torch as rt


def run_alone(code, **env):
    return subprocess.run(
        [sys.executable, "-c", code],
        env=python_env(**env),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def before_init_worker():
    for call in (
        rt.rank,
        rt.barrier,
        lambda: rt.allreduce(torch.ones(1)),
        lambda: rt.broadcast_object(1),
        lambda: rt.DistributedOptimizer(torch.optim.SGD([torch.ones(1, requires_grad=True)], 0.1)),
    ):
        with pytest.raises(ronde.NotInitialized, match=r"call ronde.torch.init\(\) first"):
            call()
    assert not rt.is_initialized()
    rt.shutdown()


def test_before_init(two):
    two.run(before_init_worker, init=False)


def again_worker():
    for i in range(20):
        rt.init()
        rt.init()
        assert rt.is_initialized()
        assert rt.allreduce(torch.full((3,), float(i)), name="x").tolist() == [i] * 3
        rt.shutdown()
        rt.shutdown()
        assert not rt.is_initialized()


def test_init_again(job):
    job.run(again_worker, init=False)


def where_worker():
    return (
        rt.rank(),
        rt.size(),
        rt.local_rank(),
        rt.local_size(),
        rt.cross_rank(),
        rt.cross_size(),
    )


def test_ranks(job):
    n = job.size
    assert job.run(where_worker) == [(r, n, r, n, 0, 1) for r in range(n)]


def fork_worker():
    """A forked child (as of a DataLoader) is inert, and its end harms nobody."""
    x = torch.ones(3)
    optimizer = rt.DistributedOptimizer(torch.optim.SGD([x.requires_grad_()], lr=0.1))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            rt.allreduce(torch.ones(1))
        except ronde.NotInitialized as error:
            status = 0 if "fork" in str(error) else 2
        try:
            (x * 2).sum().backward()
            status = 3
        except ronde.NotInitialized:
            pass
        rt.shutdown()
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    (x * 2).sum().backward()
    optimizer.step()
    assert rt.allreduce(torch.ones(1), op=rt.Sum) == rt.size()


def test_fork(job):
    job.run(fork_worker)


def loader_worker():
    dataset = torch.utils.data.TensorDataset(torch.arange(64.0))
    loader = torch.utils.data.DataLoader(dataset, batch_size=8, num_workers=2)
    total = sum(rt.allreduce(batch.sum(), op=rt.Sum) for (batch,) in loader)
    assert total == rt.size() * 63 * 32


def test_data_loader_with_forked_workers(two):
    two.run(loader_worker)


def test_without_launcher_is_a_job_of_one():
    code = (
        "import torch, ronde.torch as rt; rt.init(); print(rt.size(), rt.rank());"
        "print(rt.allreduce(torch.ones(2)).tolist())"
    )
    done = run_alone(code)
    assert done.stdout == "1 0\n[1.0, 1.0]\n", done.stderr
    assert done.returncode == 0 and done.stderr == ""


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("RONDE_TIMEOUT_S", "soon", ["soon", "seconds"]),
        ("RONDE_LOG_LEVEL", "loud", ["loud", "debug"]),
        ("RONDE_TIMEOUTS", "1", ["RONDE_TIMEOUT_S"]),
    ],
)
def test_bad_environment(name, value, words):
    done = run_alone("import ronde.torch as rt; rt.init()", **{name: value})
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "InvalidArgument" in last
    for word in [name, *words]:
        assert word in last


BLOCKED = """
import os, sys, time, torch, ronde, ronde.torch as rt
rt.init()
if rt.rank() == 1:
    {victim}
print("waiting", flush=True)
start = time.monotonic()
try:
    {call}
except BaseException as error:
    print(f"raised {{type(error).__name__}} after {{time.monotonic() - start:.3f}}: {{error}}",
          flush=True)
    {after}
"""


def test_ctrl_c_in_a_blocked_call():
    """Rank 1 never comes; SIGINT to rank 0 alone ends its wait."""
    code = BLOCKED.format(
        victim="time.sleep(60)",
        call="""
    import signal, threading
    sent = []
    def interrupt():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    threading.Timer(0.5, interrupt).start()
    rt.allreduce(torch.ones(1000))""",
        after="print(f'late {time.monotonic() - sent[0]:.3f}', flush=True); os._exit(9)",
    )
    done = launch(2, code)
    assert "raised KeyboardInterrupt" in done.stdout, done.stdout + done.stderr
    assert float(re.search(r"late ([\d.]+)", done.stdout)[1]) < 1.0
    assert done.returncode != 0


def test_ctrl_c_while_joining():
    code = """
import os, signal, threading, time, ronde.torch as rt
if os.environ["RANK"] == "1":
    time.sleep(60)
sent = []
def interrupt():
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
threading.Timer(0.5, interrupt).start()
try:
    rt.init()
except KeyboardInterrupt:
    print(f"late {time.monotonic() - sent[0]:.3f}", flush=True)
    os._exit(9)
"""
    done = launch(2, code)
    assert float(re.search(r"late ([\d.]+)", done.stdout)[1]) < 1.0


@pytest.mark.parametrize(
    "call",
    [
        "[rt.allreduce(torch.ones(1000)) for _ in range(10)]",
        "rt.synchronize(rt.allreduce_async(torch.ones(10), name='x'))",
        "[rt.allgather(torch.ones(1000000)) for _ in range(10)]",
        "rt.broadcast_object(None, root_rank=1)",
    ],
)
def test_killed_rank_is_named(call):
    code = BLOCKED.format(
        victim="time.sleep(0.5); os.kill(os.getpid(), 9)",
        call=call,
        after="""
    try:
        rt.barrier()
    except ronde.PeerLost:
        print("later calls too", flush=True)
    raise""",
    )
    done = launch(3, code)
    for rank in (0, 2):
        pattern = rf"\[{rank}\] raised PeerLost after [\d.]+: .*rank 1"
        assert re.search(pattern, done.stdout), done.stdout + done.stderr
        assert f"[{rank}] later calls too" in done.stdout
    assert done.returncode != 0
    assert re.search(r"rank 1.*SIGKILL", done.stderr), done.stderr


def test_killed_rank_during_backward():
    code = """
import os, torch, ronde, ronde.torch as rt
rt.init()
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)])
optimizer = rt.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01))
for step in range(1000):
    if rt.rank() == 1 and step == 5:
        model[3].weight.register_hook(lambda g: os.kill(os.getpid(), 9))
    optimizer.zero_grad()
    try:
        model(torch.ones(4, 256)).sum().backward()
        optimizer.step()
    except ronde.PeerLost as error:
        print(f"step {step}: {error}", flush=True)
        os._exit(3)
"""
    done = launch(3, code)
    for rank in (0, 2):
        assert re.search(rf"\[{rank}\] step 5: .*rank 1", done.stdout), done.stdout + done.stderr


def test_the_rank_with_the_exception_is_to_blame():
    code = """
import numpy as np
import ronde.numpy as rn
rn.init()
for i in range(20):
    if rn.rank() == 1 and i == 10:
        raise ValueError("boom")
    rn.allreduce(np.ones(3))
"""
    for _ in range(5):
        done = launch(3, code)
        assert "rank 1 failed first" in done.stderr, done.stderr
        assert "  | ValueError: boom" in done.stderr
        assert "PeerLost: rank 1" in done.stderr


def test_rank_that_leaves_is_reported():
    """A rank that exits while others wait, with and without shutdown(), is not waited for."""
    for leave in ("os._exit(0)", "sys.exit(0)"):
        code = BLOCKED.format(
            victim=f"time.sleep(0.3); {leave}",
            call="rt.allreduce(torch.ones(10))",
            after="os._exit(3)",
        )
        done = launch(2, code)
        assert re.search(r"\[0\] raised \w+ after [\d.]+: .*rank 1", done.stdout), (
            leave,
            done.stdout,
            done.stderr,
        )


def test_nothing_is_left_behind():
    before = set(os.listdir("/dev/shm"))
    done = launch(2, "import torch, ronde.torch as rt; rt.init(); rt.allreduce(torch.ones(10))")
    assert done.returncode == 0, done.stderr
    assert set(os.listdir("/dev/shm")) <= before


def test_shutdown_with_work_in_flight(two):
    two.run(in_flight_worker)


def in_flight_worker():
    if rt.rank() == 0:
        handle = rt.allreduce_async(torch.ones(1000), name="never")
        rt.shutdown()
        with pytest.raises(ronde.Error):
            rt.synchronize(handle)
    else:
        time.sleep(0.05)


def test_many_jobs_leave_no_resources(two):
    for equal, counts in two.run(resources_worker, init=False):
        assert equal, counts


def resources_worker():
    """Descriptors and mappings after many joins are those after the first few."""

    def resources():
        with open("/proc/self/maps") as maps:
            return len(os.listdir("/proc/self/fd")), sum("ronde" in line for line in maps)

    def join():
        rt.init()
        x = torch.nn.Parameter(torch.ones(1000))
        optimizer = rt.DistributedOptimizer(torch.optim.SGD([x], lr=0.1))
        x.sum().backward()
        optimizer.step()
        rt.shutdown()

    for _ in range(3):
        join()
    before = resources()
    for _ in range(10):
        join()
    return resources() == before, (before, resources())


def test_ronde_command_says_version():
    done = subprocess.run(
        [ronde_command(), "--version"], capture_output=True, text=True, timeout=10, check=True
    )
    assert ronde.__version__ in done.stdout
