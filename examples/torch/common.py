"""What the Fashion-MNIST examples share and what is not about training: data, bars, measures."""

import gzip
import hashlib
import json
import os
import pathlib
import struct
import sys
import time

import torch

# Where Debian's package dataset-fashion-mnist puts the original files.
FOLDER = pathlib.Path(os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))


def _read_idx(path):
    """A file of the MNIST family: magic, dimensions, then bytes."""
    with gzip.open(path, "rb") as file:
        dims = file.read(4)[3]
        shape = struct.unpack(f">{dims}I", file.read(4 * dims))
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).reshape(shape)


def _digits():
    """scikit-learn's 8x8 digits, for machines without the real images."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(digits.target)
    return images[:1500], labels[:1500], images[1500:], labels[1500:]


def load_dataset(limit=None):
    """Training images [n, 1, side, side] in float32 and labels [n] in int64, then the test ones."""
    if not FOLDER.is_dir():
        print(f"{FOLDER} is not there: using scikit-learn's digits", file=sys.stderr)
        return _digits()
    data = []
    for part in ("train", "t10k"):
        images = _read_idx(FOLDER / f"{part}-images-idx3-ubyte.gz").unsqueeze(1)
        data += [images, _read_idx(FOLDER / f"{part}-labels-idx1-ubyte.gz").long()]
    data[0], data[1] = data[0][:limit], data[1][:limit]
    return [((x / 255) - 0.286) / 0.353 if x.dtype == torch.uint8 else x for x in data]


def progress(batches, title):
    """The batches, with a bar: a moving one on a terminal, else lines, of the first rank only."""
    if os.environ.get("RANK", "0") != "0":
        return batches
    if not sys.stderr.isatty():
        return _lines(batches, title)
    from rich.console import Console
    from rich.progress import track

    return track(batches, title, console=Console(stderr=True))


def _lines(batches, title):
    start, printed = time.monotonic(), 0
    for i, batch in enumerate(batches, 1):
        yield batch
        done = i * 5 // len(batches)
        if done > printed:
            printed = done
            bar = "#" * (4 * done) + "." * (4 * (5 - done))
            seconds = time.monotonic() - start
            print(f"{title} {bar} {20 * done:3} %  {seconds:5.1f} s", file=sys.stderr, flush=True)


def write_json(path, **results):
    """Writes results; "{rank}" in the path stands for the rank."""
    path = path.replace("{rank}", os.environ.get("RANK", "0"))
    pathlib.Path(path).write_text(json.dumps(results))


@torch.no_grad()
def accuracy(model, images, labels):
    """The share of images whose label the model finds, 0 to 1."""
    right = 0
    for x, y in zip(images.split(1000), labels.split(1000), strict=True):
        right += (model(x).argmax(1) == y).sum().item()
    return right / len(images)


def digest(model):
    """A hash of the parameters' bits: equal digests, equal models."""
    state = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        state.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return state.hexdigest()[:16]
