"""Checks that #include lines follow the arrows of docs/design.md, section Layout.

Reads every .h and .cc file under the source folders, prints each forbidden include, and exits 1 if
there is one.
"""

from __future__ import annotations

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# layer -> layers whose headers it may include, besides itself and the public headers (core/include)
ALLOWED = {
    "core/base": [],
    "core/kernels": ["core/base"],
    "core/plan": ["core/base", "core/kernels"],
    "core/control": ["core/base", "core/kernels", "core/plan"],
    "core/exec": ["core/base", "core/kernels", "core/plan", "core/control"],
    "core/runtime": ["core/base", "core/kernels", "core/plan", "core/control", "core/exec"],
    "core/launch": ["core/base", "core/kernels", "core/plan", "core/control", "core/exec"],
    "core/include": [],
    "backends": ["core"],
    "tuning": ["core"],
    "bindings": ["core", "backends", "tuning"],
    "examples": ["core", "backends", "tuning", "bindings"],
    "tests": ["core", "backends", "tuning", "bindings"],
}
# Headers of frameworks, GPUs and MPI, and the only folders in which they may appear.
FOREIGN = {
    re.compile(r"^(mpi\.h|gloo/|ucp/|ucs/|nccl|cuda)"): ["backends", "tuning/bench/peers"],
    re.compile(r"^(nanobind/|Python\.h|pybind11/|torch/|ATen/)"): ["bindings/python"],
    re.compile(r"^CLI/"): ["bindings/cli", "tuning/bench", "tests/perf", "examples"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


def layer_of(path: str) -> str | None:
    """The longest layer name that is a prefix of `path`, or None for headers that are not ours."""
    matches = [layer for layer in ALLOWED if path == layer or path.startswith(layer + "/")]
    return max(matches, key=len) if matches else None


def violation(source: str, header: str) -> str | None:
    """Why `source` may not include `header`, or None."""
    for pattern, folders in FOREIGN.items():
        if pattern.match(header) and not any(source.startswith(f + "/") for f in folders):
            return f"only {', '.join(folders)} may include it"
    target = "core/include" if header.startswith("ronde/") else layer_of(header)
    here = layer_of(source)
    if target is None or here is None or target in (here, "core/include"):
        return None
    if any(target == a or target.startswith(a + "/") for a in ALLOWED[here]):
        # backends and tuning never see each other; a backend sees no other backend.
        return None
    return f"{here} may only use {', '.join(ALLOWED[here]) or 'nothing'}"


def main() -> int:
    bad = 0
    checked = 0
    for top in ("core", "backends", "tuning", "bindings", "examples", "tests"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix not in (".h", ".cc"):
                continue
            source = path.relative_to(ROOT).as_posix()
            checked += 1
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = INCLUDE.match(line)
                why = violation(source, match.group(1)) if match else None
                if why:
                    print(f"{source}:{number}: includes {match.group(1)}: {why}")
                    bad += 1
    print(f"include check: {checked} files, {bad} violations")
    return 1 if bad or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
