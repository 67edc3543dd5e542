"""The examples run, and say what they claim."""

import difflib
import json
import pathlib
import subprocess
import sys

from conftest import python_env, ronde_command

ROOT = pathlib.Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "torch"


def code_of(name):
    """The script's lines after its docstring."""
    return (SCRIPTS / name).read_text().split('"""', 2)[2].splitlines()


def test_four_lines_make_the_difference():
    diff = difflib.ndiff(code_of("fashion_mnist_plain.py"), code_of("fashion_mnist.py"))
    changes = [line for line in diff if line[0] in "+-" and line[2:].strip()]
    assert all(line[0] == "+" for line in changes), changes
    assert changes.pop(0) == "+ import ronde.torch as rd"
    assert len(changes) == 4
    assert all("# ronde" in line and "rd." in line for line in changes)


def run(command, folder):
    done = subprocess.run(
        command, env=python_env(), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(path.read_text()) for path in sorted(folder.iterdir())]


def test_fashion_mnist(tmp_path):
    options = ["--epochs", "1", "--limit", "1280"]
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    plain = [sys.executable, str(SCRIPTS / "fashion_mnist_plain.py"), *options]
    (alone,) = run([*plain, "--json", str(one / "{rank}")], one)
    wrapped = [sys.executable, str(SCRIPTS / "fashion_mnist.py"), *options]
    results = run([ronde_command(), "run", "-n", "2", *wrapped, "--json", str(two / "{rank}")], two)
    assert results[0]["digest"] == results[1]["digest"]
    # The same steps but for rounding: nearly the same model.
    assert abs(results[0]["accuracy"][0] - alone["accuracy"][0]) < 0.05
    (again,) = run([*wrapped, "--json", str(one / "{rank}")], one)
    assert again["digest"] == alone["digest"]  # at size 1 exactly the ordinary script
