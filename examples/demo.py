"""What `./dev demo` shows: Fashion-MNIST on two ranks, compared with one, and a bandwidth table.

    ./dev demo [--ranks 2] [--epochs 2]

Needs PATH and PYTHONPATH as the README sets them. Exit status 1 when a run fails or the ranks'
models differ.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from rich.console import Console
from rich.table import Table

SCRIPTS = pathlib.Path(__file__).parent / "torch"
console = Console()


def run(title, command):
    """Runs a command with its output shown; ends the demo when it fails. Returns the seconds."""
    console.rule(title)
    console.print("$ " + " ".join(command), style="dim", highlight=False)
    start = time.monotonic()
    # One thread for each process, so that the comparison is of ranks and of nothing else.
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    status = subprocess.run(command, env=env, check=False).returncode
    if status != 0:
        sys.exit(f"demo: '{' '.join(command)}' ended with status {status}")
    return time.monotonic() - start


def train(ranks, epochs, folder):
    results = str(folder / f"{ranks}.{{rank}}.json")
    options = ["--epochs", str(epochs), "--json", results]
    if ranks == 1:
        script = [sys.executable, str(SCRIPTS / "fashion_mnist_plain.py")]
        title, launcher = "The ordinary script, one process", []
    else:
        script = [sys.executable, str(SCRIPTS / "fashion_mnist.py")]
        title = f"The same script with four lines more, {ranks} ranks"
        launcher = ["ronde", "run", "-n", str(ranks)]
    seconds = run(title, [*launcher, *script, *options])
    files = [results.replace("{rank}", str(rank)) for rank in range(ranks)]
    return seconds, [json.loads(pathlib.Path(file).read_text()) for file in files]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        many_s, many = train(args.ranks, args.epochs, pathlib.Path(folder))
        one_s, (one,) = train(1, args.epochs, pathlib.Path(folder))

    console.rule("Results")
    digests = [result["digest"] for result in many]
    for rank, digest in enumerate(digests):
        console.print(f"parameters of rank {rank}: {digest}", highlight=False)
    equal = len(set(digests)) == 1
    console.print("bitwise equal" if equal else "DIFFERENT", style="green" if equal else "red")

    table = Table(title="Test accuracy, the same images per step")
    for column in ("after epoch", "one process", f"{args.ranks} ranks"):
        table.add_column(column, justify="right")
    for epoch in range(args.epochs):
        pair = [f"{100 * r['accuracy'][epoch]:.2f} %" for r in (one, many[0])]
        table.add_row(str(epoch + 1), *pair)
    table.add_row("seconds, start included", f"{one_s:.1f}", f"{many_s:.1f}")
    console.print(table)

    sizes = ["--min-bytes", "64K", "--max-bytes", "64M", "--factor", "16"]
    bench = ["ronde", "bench", "allreduce", "--ranks", str(args.ranks), *sizes, "--iters", "10"]
    run("Bandwidth", bench)
    if not equal:
        sys.exit("demo: the ranks' models differ")


if __name__ == "__main__":
    main()
