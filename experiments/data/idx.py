"""MNIST, and data sets in its format such as Fashion-MNIST, from their IDX files.

http://yann.lecun.com/exdb/mnist defines IDX: two zeros, the code of a type (8: unsigned bytes), the
number of dimensions; their sizes, big-endian, in four bytes each; the elements. torchvision reads
them too, but each of its versions needs one version of torch, and the installed torch must stay.
"""

import gzip
import math
import struct
import zlib
from pathlib import Path

import torch
from torch import Tensor

from experiments.data.dataset import Dataset, Part

CLASSES = 10


def held_out(examples: int) -> int:
    """How many of the training examples validate."""
    return 5_000 if examples >= 10_000 else max(1, examples // 10)


def find(folder: Path, name: str) -> Path:
    names = [stem + end for stem in (name, name.replace("-idx", ".idx")) for end in ("", ".gz")]
    for path in (folder / n for n in names):
        if path.is_file():
            return path
    raise FileNotFoundError(f"{folder}: expected one of {', '.join(names)}, found none")


def read(path: Path, dimensions: int) -> Tensor:
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(
                f"{path}: expected a gzip file, found a corrupt one: {error}"
            ) from error
    magic, header = 0x800 + dimensions, 4 + 4 * dimensions
    if content[:4] != struct.pack(">I", magic):
        raise ValueError(
            f"{path}: expected an IDX file of unsigned bytes in {dimensions} dimensions "
            f"(magic 0x{magic:08x}), found magic 0x{content[:4].hex()}"
        )
    if len(content) < header:
        raise ValueError(f"{path}: expected a header of {header} bytes, found {len(content)} bytes")
    sizes = struct.unpack_from(f">{dimensions}I", content, 4)
    if not all(sizes):
        raise ValueError(f"{path}: expected elements, found the sizes {sizes}")
    if len(content) != header + math.prod(sizes):
        expected = header + math.prod(sizes)
        raise ValueError(f"{path}: expected {expected} bytes, found {len(content)}")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=header).view(sizes)


def examples(folder: Path, part: str) -> Part:
    of_images, of_labels = (
        find(folder, f"{part}-{n}-ubyte") for n in ("images-idx3", "labels-idx1")
    )
    images, labels = read(of_images, 3), read(of_labels, 1)
    if len(images) != len(labels):
        raise ValueError(
            f"{of_images}: expected {len(labels)} images, as {of_labels.name} has labels, "
            f"found {len(images)}"
        )
    if labels.max() >= CLASSES:
        raise ValueError(f"{of_labels}: expected labels from 0 to 9, found {labels.max()}")
    return Part(images.flatten(1) / 255, labels.long())


def mnist(folder: Path) -> Dataset:
    """Named after the folder, as the files do not tell MNIST from Fashion-MNIST."""
    train, test = examples(folder, "train"), examples(folder, "t10k")
    if train.x.shape[1] != test.x.shape[1]:
        raise ValueError(
            f"{folder}: expected test images of {train.x.shape[1]} pixels, as those to train on, "
            f"found {test.x.shape[1]} pixels"
        )
    # The first, as the paper's reader takes them: TensorFlow's examples/tutorials/mnist/input_data.
    n = held_out(len(train.x))
    train, validation = Part(*(t[n:] for t in train)), Part(*(t[:n] for t in train))
    return Dataset(folder.resolve().name, train, validation, test, CLASSES)
