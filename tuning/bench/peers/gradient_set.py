"""The gradients of ResNet-50, exchanged by Ronde's hooks and by DDP on Gloo, side by side.

Run on every rank: ``ronde run -n 2 python gradient_set.py --placement PROGRAM [--json FILE]``. A
step is the backward pass of sum(p * c) over the 161 parameters, which costs little, so that one
sees the exchange. Steps are interleaved, the time of each being that of its slowest rank::

    ronde   = (backward with Ronde's hooks) - (backward of a job of size 1: no hooks)
    DDP     = (backward of DDP on Gloo) - (backward of DDP over one rank)
    raw     = the reduction of the same set in place in its arena, nothing else

See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

import ronde.torch as ronde

WARMUP_STEPS = 4
MAX_TRIES_PER_PAIR = 3  # a pair during which the cores moved is dropped


def resnet50_shapes() -> list[tuple[int, ...]]:
    """Shapes of ResNet-50's parameters in their order: convolutions, batch norms, classifier."""
    shapes: list[tuple[int, ...]] = []

    def convolution(inputs: int, outputs: int, kernel: int) -> None:
        shapes.append((outputs, inputs, kernel, kernel))
        shapes.extend([(outputs,), (outputs,)])  # its batch norm: weight and bias

    convolution(3, 64, 7)
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        outputs = 4 * width
        for block in range(blocks):
            convolution(inputs, width, 1)
            convolution(width, width, 3)
            convolution(width, outputs, 1)
            if block == 0:
                convolution(inputs, outputs, 1)  # the shortcut
            inputs = outputs
    shapes.extend([(1000, inputs), (1000,)])
    count = sum(torch.Size(shape).numel() for shape in shapes)
    assert (len(shapes), count) == (161, 25_557_032), (len(shapes), count)
    return shapes


class WeightedSum(torch.nn.Module):
    """sum(p * c) over parameters p; c are constants shared by all instances."""

    def __init__(self, constants: list[torch.Tensor]) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.zeros_like(c) for c in constants)
        self.constants = constants

    def forward(self) -> torch.Tensor:
        return torch.stack(
            [(p * c).sum() for p, c in zip(self.weights, self.constants, strict=True)]
        ).sum()


class Field:
    """The candidates, each a step that returns its own duration in seconds on this rank."""

    def __init__(self) -> None:
        constants = [torch.randn(shape) for shape in resnet50_shapes()]
        self.plain = WeightedSum(constants)
        self.hooked = WeightedSum(constants)
        self.optimizer = ronde.DistributedOptimizer(
            torch.optim.SGD(self.hooked.parameters(), lr=0.0), self.hooked.named_parameters()
        )
        alone = [dist.new_group([rank]) for rank in range(ronde.size())][ronde.rank()]
        ddp = torch.nn.parallel.DistributedDataParallel
        self.ddp_alone = ddp(WeightedSum(constants), process_group=alone)
        self.ddp = ddp(WeightedSum(constants))

    def steps(self) -> dict[str, Callable[[], float]]:
        return {
            "plain": lambda: self._backward(self.plain, self.plain),
            "ronde": lambda: self._backward(self.hooked, self.optimizer),
            "raw": self._raw,
            "ddp_alone": lambda: self._backward(self.ddp_alone, self.ddp_alone),
            "ddp": lambda: self._backward(self.ddp, self.ddp),
        }

    def check(self) -> None:
        """Ronde's gradients and DDP's are the same mean."""
        for ours, theirs in zip(self.hooked.parameters(), self.ddp.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad)

    @staticmethod
    def _backward(model: torch.nn.Module, owner: torch.nn.Module | torch.optim.Optimizer) -> float:
        owner.zero_grad(set_to_none=True)
        loss = model()
        ronde.barrier()
        start = time.perf_counter()
        loss.backward()
        return time.perf_counter() - start

    def _raw(self) -> float:
        # Cleared gradients stay in the arena, so this reduces in place and copies nothing.
        self.optimizer.zero_grad(set_to_none=False)
        ronde.barrier()
        start = time.perf_counter()
        self.optimizer.synchronize()
        return time.perf_counter() - start


def placement(program: str) -> str:
    """The class of the cores, asked by rank 0: near, far, or unclear."""
    code = 0
    names = ["unclear", "near", "far"]
    if ronde.rank() == 0:
        answer = subprocess.run(
            [program, "--placement"], check=True, capture_output=True, text=True
        )
        code = names.index(answer.stdout.split()[0])
    return names[int(ronde.broadcast(torch.tensor([code]), root_rank=0)[0])]


def measure(pairs: int, program: str) -> dict[str, dict[str, list[float]]]:
    """Times in us by class and step, of pairs during which the class stayed."""
    field = Field()
    steps = field.steps()
    for _ in range(WARMUP_STEPS):
        for step in steps.values():
            step()
    steps["ronde"]()
    field.check()
    times: dict[str, dict[str, list[float]]] = {}
    good = tries = 0
    while good < pairs and tries < MAX_TRIES_PER_PAIR * pairs:
        tries += 1
        before = placement(program)
        mine = torch.tensor([step() for step in steps.values()], dtype=torch.float64)
        slowest = ronde.allreduce(mine, op=ronde.Max)
        if placement(program) != before or before == "unclear":
            continue
        good += 1
        of_class = times.setdefault(before, {name: [] for name in steps})
        for name, seconds in zip(steps, slowest.tolist(), strict=True):
            of_class[name].append(seconds * 1e6)
        if ronde.rank() == 0 and sys.stderr.isatty():
            print(f"\r\033[Kgradient set: pair {good} of {pairs}", end="", file=sys.stderr)
    if ronde.rank() == 0 and sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return times


def summarize(name: str, times: dict[str, list[float]]) -> dict[str, str | int | float]:
    """The issue's object for one class: medians of paired differences, in us."""

    def difference(step: str, base: str) -> float:
        return statistics.median(a - b for a, b in zip(times[step], times[base], strict=True))

    return {
        "class": name,
        "pairs": len(times["ronde"]),
        "ronde_us": difference("ronde", "plain"),
        "ddp_gloo_us": difference("ddp", "ddp_alone"),
        "raw_arena_us": statistics.median(times["raw"]),
    }


def report(times: dict[str, dict[str, list[float]]], path: pathlib.Path | None) -> None:
    print(f"# gradient set of ResNet-50: 161 tensors, 25557032 float32, {ronde.size()} ranks,")
    print(
        f"# {torch.get_num_threads()} thread(s) each, torch {torch.__version__}; medians in us of"
    )
    print("# (backward with exchange) - (the same at size 1); raw: the in-place reduction alone")
    print("# class  pairs       Ronde    DDP/Gloo         raw   DDP/Ronde   Ronde/raw")
    results = [summarize(name, of_class) for name, of_class in sorted(times.items())]
    for r in results:
        line = (r["ronde_us"], r["ddp_gloo_us"], r["raw_arena_us"])
        ratios = (r["ddp_gloo_us"] / r["ronde_us"], r["ronde_us"] / r["raw_arena_us"])
        numbers = "".join(f"{value:12.0f}" for value in line)
        print(f"  {r['class']:>5}  {r['pairs']:5d}{numbers}{ratios[0]:11.2f}x{ratios[1]:11.2f}x")
    if not results:
        print("# the cores' placement did not keep still: nothing measured")
    if path is not None and results:
        document = json.loads(path.read_text()) if path.exists() else {}
        document["gradient_set"] = max(results, key=lambda r: r["pairs"])
        path.write_text(json.dumps(document, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--pairs", type=int, default=30, help="interleaved measurements (default 30)"
    )
    parser.add_argument("--json", type=pathlib.Path, help="add the result to this JSON file")
    parser.add_argument("--placement", required=True, help="the program ronde-bench-peers")
    arguments = parser.parse_args()
    ronde.init()
    dist.init_process_group("gloo")
    times = measure(arguments.pairs, arguments.placement)
    if ronde.rank() == 0:
        report(times, arguments.json)
    ronde.barrier()
    dist.destroy_process_group()
    ronde.shutdown()


if __name__ == "__main__":
    main()
