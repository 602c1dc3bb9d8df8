"""CIFAR-10 and CIFAR-100, from the binary versions of https://www.cs.toronto.edu/~kriz/cifar.html.

A record is a label (CIFAR-100: the coarse one, then the fine one) and the red, the green and the
blue pixels, row by row, each one byte.
"""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from experiments.data.dataset import Dataset, Part
from experiments.data.idx import held_out

SHAPE = (3, 32, 32)
PADDING = 4


def find(folder: Path, binary: str, python: str, name: str) -> Path:
    inside = folder / binary
    path = (inside if inside.is_dir() else folder) / name
    if not path.is_file():
        pickled = (folder / python).is_dir() or path.with_suffix("").is_file()
        found = "the Python version" if pickled else "no such file"
        raise FileNotFoundError(f"{path}: expected a file of the binary version, found {found}")
    return path


def read(path: Path, classes: tuple[int, ...]) -> Part:
    """Reads images, as bytes, and the last of their labels, each below its number of classes."""
    content = path.read_bytes()
    size = len(classes) + torch.Size(SHAPE).numel()
    if not content or len(content) % size:
        raise ValueError(f"{path}: expected records of {size} bytes, found {len(content)} bytes")
    records = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, size)
    labels = records[:, : len(classes)].long()
    for column, count in zip(labels.unbind(1), classes, strict=True):
        if column.max() >= count:
            raise ValueError(f"{path}: expected labels from 0 to {count - 1}, found {column.max()}")
    return Part(records[:, len(classes) :].reshape(-1, *SHAPE), labels[:, -1])


def split(name: str, train: Part, test: Part, classes: int, **rest: object) -> Dataset:
    """Keeps the last of the training examples for validation."""
    n = len(train.y) - held_out(len(train.y))
    train, validation = Part(*(t[:n] for t in train)), Part(*(t[n:] for t in train))
    return Dataset(name, train, validation, test, classes, **rest)


def cifar10(folder: Path) -> Dataset:
    def scaled(*names: str) -> Part:
        paths = [find(folder, "cifar-10-batches-bin", "cifar-10-batches-py", n) for n in names]
        images, labels = map(torch.cat, zip(*(read(p, (10,)) for p in paths), strict=True))
        # As in all_convnet.py, the paper's code.
        return Part(images.float().sub_(127.5).div_(128), labels)

    train = scaled(*(f"data_batch_{n}.bin" for n in range(1, 6)))
    return split("CIFAR-10", train, scaled("test_batch.bin"), 10)


def crop_and_mirror(x: Tensor) -> Tensor:
    """Pads images with zeros, crops each at a random place, and mirrors half of them."""
    count, channels, height, width = x.shape
    top, left = torch.randint(0, 2 * PADDING + 1, (2, count, 1))
    mirrored = torch.randint(0, 2, (count, 1)) == 1
    column = torch.arange(width)
    rows = (top + torch.arange(height)).to(x.device)
    columns = (left + torch.where(mirrored, column.flip(0), column)).to(x.device)
    image = torch.arange(count, device=x.device).view(-1, 1, 1, 1)
    channel = torch.arange(channels, device=x.device).view(-1, 1, 1)
    padded = F.pad(x, (PADDING,) * 4)
    return padded[image, channel, rows[:, None, :, None], columns[:, None, None, :]]


def cifar100(folder: Path) -> Dataset:
    """Subtracts the mean of each pixel over the training images, as the paper's code does."""
    train, test = (
        read(find(folder, "cifar-100-binary", "cifar-100-python", n), (20, 100))
        for n in ("train.bin", "test.bin")
    )
    mean = train.x.sum(0).double().div(255 * len(train.x)).float()  # summed as integers: exact
    train, test = (Part(p.x.float().div_(255).sub_(mean), p.y) for p in (train, test))
    return split("CIFAR-100", train, test, 100, augment=crop_and_mirror)
