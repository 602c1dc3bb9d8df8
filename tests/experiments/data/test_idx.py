"""experiments/data/idx.py reads MNIST's files and reports malformed ones."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.data.idx import held_out, mnist
from tests.experiments.data import written_files as written

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def pixels(images: np.ndarray) -> torch.Tensor:
    rows = [[np.float32(byte) / np.float32(255) for byte in image.flat] for image in images]
    return torch.tensor(np.array(rows))


def test_examples(tmp_path: Path) -> None:
    files = written.mnist(tmp_path)
    data = mnist(tmp_path)
    assert (data.name, data.classes, data.table, data.augment) == (tmp_path.name, 10, None, None)
    images, labels = files[IMAGES], files[LABELS]
    test = [files[f"t10k-{kind}-ubyte"] for kind in ("images-idx3", "labels-idx1")]
    expected = [(images[4:], labels[4:]), (images[:4], labels[:4]), test]
    for part, (x, y) in zip((data.train, data.validation, data.test), expected, strict=True):
        assert torch.equal(part.x, pixels(x)) and part.x.dtype == torch.float32
        assert part.y.tolist() == y.tolist() and part.y.dtype == torch.int64
    assert data.input_shape() == (784,)


@pytest.mark.parametrize(
    "count, validate", [(60_000, 5_000), (10_000, 5_000), (9_999, 999), (3, 1)]
)
def test_held_out(count: int, validate: int) -> None:
    assert held_out(count) == validate


def test_names(tmp_path: Path) -> None:
    """Plain or gzipped, and with a dot before idx."""
    files = written.mnist(tmp_path)
    expected = mnist(tmp_path)
    endings = [("-idx", ".gz"), (".idx", ""), (".idx", ".gz"), ("-idx", "")]
    for name, (idx, gz) in zip(files, endings, strict=True):
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).unlink()
        path = tmp_path / (name.replace("-idx", idx) + gz)
        path.write_bytes(gzip.compress(content) if gz else content)
    for ours, plain in zip(mnist(tmp_path).train, expected.train, strict=True):
        assert torch.equal(ours, plain)


def test_other_sizes(tmp_path: Path) -> None:
    written.mnist(tmp_path)
    for part, count in (("train", 40), ("t10k", 20)):
        array = np.arange(count * 2 * 3).reshape(count, 2, 3)
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(written.idx(array))
    x = mnist(tmp_path).validation.x
    assert torch.equal(x, torch.arange(24).view(4, 6) / 255)


def test_missing(tmp_path: Path) -> None:
    written.mnist(tmp_path)
    (tmp_path / LABELS).unlink()
    with pytest.raises(FileNotFoundError, match=rf"expected one of {LABELS}.*\.gz, found none"):
        mnist(tmp_path)


ZEROS = np.zeros((40, 28, 28))
WRONG = {
    "dimensions": (
        IMAGES,
        written.idx(ZEROS[0, 0]),
        "in 3 dim.*0x00000803.*found magic 0x00000801",
    ),
    "type": (
        IMAGES,
        b"\0\0\x0d\3" + written.idx(ZEROS)[4:],
        "unsigned bytes.*found magic 0x00000d03",
    ),
    "empty": (IMAGES, b"", "found magic 0x$"),
    "header": (IMAGES, written.idx(ZEROS)[:10], "a header of 16 bytes, found 10 bytes"),
    "cut short": (IMAGES, written.idx(ZEROS)[:100], "31376 bytes, found 100"),
    "too long": (LABELS, written.idx(ZEROS[:, 0, 0]) + b"\0", "48 bytes, found 49"),
    "no images": (IMAGES, written.idx(ZEROS[:0]), r"the sizes \(0, 28, 28\)"),
    "counts": (IMAGES, written.idx(ZEROS[:39]), f"40 images, as {LABELS}.*found 39"),
    "labels": (LABELS, written.idx(np.full(40, 10)), "labels from 0 to 9, found 10"),
}


@pytest.mark.parametrize("name, content, message", WRONG.values(), ids=WRONG)
def test_wrong_file(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    written.mnist(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name}: expected .*{message}"):
        mnist(tmp_path)


def test_sizes_of_train_and_test(tmp_path: Path) -> None:
    written.mnist(tmp_path)
    (tmp_path / IMAGES).write_bytes(written.idx(ZEROS[:, :5, :5]))
    with pytest.raises(ValueError, match=f"{tmp_path}: .* of 25 pixels.*found 784 pixels"):
        mnist(tmp_path)


GZIPPED = gzip.compress(written.idx(ZEROS))
CORRUPT = {
    "not gzip": written.idx(ZEROS),
    "cut short": GZIPPED[:-20],
    "checksum": GZIPPED[:-8] + b"\0" * 8,
    "deflate": GZIPPED[:10] + b"\xff" * 50,
}


@pytest.mark.parametrize("content", CORRUPT.values(), ids=CORRUPT)
def test_corrupt_gzip(content: bytes, tmp_path: Path) -> None:
    written.mnist(tmp_path)
    (tmp_path / IMAGES).unlink()
    (tmp_path / f"{IMAGES}.gz").write_bytes(content)
    with pytest.raises(ValueError, match=rf"{IMAGES}\.gz: expected a gzip file, found a corrupt"):
        mnist(tmp_path)
