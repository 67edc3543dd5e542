"""How the ways to reduce private buffers compare, by ranks, size and placement of the cores.

Run as ``./dev bench paths [--ranks 2,3,4] [--repeats 3] [--plot FILE]``. Every way is forced by
RONDE_RULES and measured by ``ronde bench``; the ways take turns, because virtual machines move
their cores between placements, and rows are kept apart by the placement (near or far) that
``ronde bench`` saw. Prints a Markdown table of medians in us. docs/experiments.md has a result.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

WAYS = {
    "cached": "allreduce:0-=shm/cached",
    "streamed": "allreduce:0-=shm/streamed",
    "staged (default)": "",
}

# By (class, ranks, bytes), then by way: medians in us of the repeats that met the class.
Times = dict[tuple[str, int, int], dict[str, list[float]]]


def measure(ranks: int, rules: str, sizes: argparse.Namespace) -> list[dict]:
    """Rows of one `ronde bench`, as its --json has them."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "rows.json"
        command = ["ronde", "bench", "allreduce", "--buffers", "private", "--json", str(out)]
        command += ["--ranks", str(ranks), "--factor", "4"]
        command += ["--min-bytes", sizes.min_bytes, "--max-bytes", sizes.max_bytes]
        environment = dict(os.environ, RONDE_RULES=rules)
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        return json.loads(out.read_text())["rows"]


def collect(arguments: argparse.Namespace) -> tuple[Times, dict[tuple[str, int, int], float]]:
    times: Times = {}
    limits: dict[tuple[str, int, int], float] = {}
    runs = [(n, way) for _ in range(arguments.repeats) for n in arguments.ranks for way in WAYS]
    for i, (ranks, way) in enumerate(runs):
        if sys.stderr.isatty():
            print(f"\r\033[K{i + 1} of {len(runs)}: {ranks} ranks, {way}", end="", file=sys.stderr)
        for row in measure(ranks, WAYS[way], arguments):
            key = (row["class"], ranks, row["bytes"])
            times.setdefault(key, {}).setdefault(way, []).append(row["time_us"]["median"])
            limits[key] = min(limits.get(key, row["limit_us"]), row["limit_us"])
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return times, limits


def size_text(size: int) -> str:
    return f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} KB"


def print_table(times: Times, limits: dict[tuple[str, int, int], float]) -> None:
    print("| class | ranks | size | " + " | ".join(WAYS) + " | limit |")
    print("|---|---|---|" + "---|" * (len(WAYS) + 1))
    for key in sorted(times):
        cells = []
        for way in WAYS:
            found = times[key].get(way)
            cells.append(f"{statistics.median(found):.0f}" if found else "-")
        placement, ranks, size = key
        row = [placement, str(ranks), size_text(size), *cells, f"{limits[key]:.0f}"]
        print("| " + " | ".join(row) + " |")


def plot(times: Times, path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = sorted({key[:2] for key in times})
    figure, axes = plt.subplots(
        1, len(panels), figsize=(4 * len(panels), 3.6), sharey=True, squeeze=False
    )
    for axis, (placement, ranks) in zip(axes[0], panels, strict=True):
        for way in WAYS:
            points = [
                (size, size / statistics.median(found[way]) / 1e3)
                for (of, n, size), found in sorted(times.items())
                if (of, n) == (placement, ranks) and way in found
            ]
            axis.plot(*zip(*points, strict=True), marker="o", label=way)
        axis.set_title(f"{placement}, {ranks} ranks")
        axis.set_xscale("log", base=2)
        axis.set_xlabel("bytes")
    axes[0][0].set_ylabel("algbw, GB/s")
    axes[0][-1].legend()
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ranks = lambda text: [int(n) for n in text.split(",")]  # noqa: E731
    parser.add_argument("--ranks", type=ranks, default=[2, 3, 4], help="default 2,3,4")
    parser.add_argument("--repeats", type=int, default=3, help="turns of all ways (default 3)")
    parser.add_argument("--min-bytes", default="256K", help="default 256K")
    parser.add_argument("--max-bytes", default="256M", help="default 256M")
    parser.add_argument("--plot", type=pathlib.Path, metavar="FILE", help="bandwidths as an image")
    arguments = parser.parse_args()
    times, limits = collect(arguments)
    print_table(times, limits)
    if arguments.plot is not None:
        plot(times, arguments.plot)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
