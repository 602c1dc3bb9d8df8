"""experiments/data/cifar.py: the records of the binary versions, and random crops."""

from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.data.cifar import cifar10, cifar100
from tests.experiments.data import written_files as written


@pytest.mark.parametrize("inside", [False, True])
def test_cifar10(inside: bool, tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin" if inside else tmp_path
    folder.mkdir(exist_ok=True)
    images, labels = written.cifar10(folder)
    data = cifar10(tmp_path)
    assert (data.name, data.classes, data.table, data.augment) == ("CIFAR-10", 10, None, None)
    x = ((images.reshape(48, 3, 32, 32) - 127.5) / 128).astype(np.float32)  # exact
    y = labels.flatten()
    parts = (data.train, slice(36)), (data.validation, slice(36, 40)), (data.test, slice(40, 48))
    for part, of in parts:
        assert np.array_equal(part.x.numpy(), x[of]) and part.x.dtype == torch.float32
        assert part.y.tolist() == y[of].tolist() and part.y.dtype == torch.int64
    assert data.input_shape() == (3, 32, 32)


@pytest.mark.parametrize("inside", [False, True])
def test_cifar100(inside: bool, tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-binary" if inside else tmp_path
    folder.mkdir(exist_ok=True)
    images, labels = written.cifar100(folder)
    data = cifar100(tmp_path)
    assert (data.name, data.classes, data.table) == ("CIFAR-100", 100, None)
    x = images / 255 - images[:40].mean(0) / 255
    parts = (data.train, slice(36)), (data.validation, slice(36, 40)), (data.test, slice(40, 60))
    for part, of in parts:
        assert np.abs(part.x.numpy() - x[of]).max() < 1e-6 and part.x.dtype == torch.float32
        assert part.y.tolist() == labels[of].tolist() and part.y.dtype == torch.int64


def test_augment(tmp_path: Path) -> None:
    """Each result is one of the 9 * 9 * 2 crops of its image, and all are equally frequent."""
    written.cifar100(tmp_path)
    augment = cifar100(tmp_path).augment
    torch.manual_seed(0)
    crops = []
    image = torch.randn(3, 32, 32)
    padded = torch.zeros(3, 40, 40)
    padded[:, 4:36, 4:36] = image
    for top in range(9):
        for left in range(9):
            crop = padded[:, top : top + 32, left : left + 32]
            crops += [crop, crop.flip(2)]
    results = augment(image.expand(3240, 3, 32, 32))
    assert results.shape == (3240, 3, 32, 32)
    # Three pixels tell the crops apart.
    three = [results[:, 0, i, j] for i, j in ((5, 5), (5, 26), (16, 16))]
    keys = torch.stack(three, 1).tolist()
    index = {(c[0, 5, 5].item(), c[0, 5, 26].item(), c[0, 16, 16].item()): c for c in crops}
    assert len(index) == 162
    counts = dict.fromkeys(index, 0)
    for key, result in zip(map(tuple, keys), results, strict=True):
        counts[key] += 1
        assert torch.equal(result, index[key])
    # 20 of each on average, with a deviation of 4.5.
    assert min(counts.values()) > 0 and max(counts.values()) < 45


def test_augment_each_image(tmp_path: Path) -> None:
    """Images stay in their places, and the default generator's seed decides."""
    written.cifar100(tmp_path)
    augment = cifar100(tmp_path).augment
    x = torch.arange(1.0, 51).view(50, 1, 1, 1).expand(50, 3, 32, 32)
    first, second = ((torch.manual_seed(seed), augment(x))[1] for seed in (1, 1))
    assert torch.equal(first, second) and not torch.equal(first, augment(x))
    assert torch.equal(first.amax((1, 2, 3)), torch.arange(1.0, 51))


def test_missing(tmp_path: Path) -> None:
    written.cifar10(tmp_path)
    (tmp_path / "data_batch_4.bin").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"data_batch_4.bin: .*binary version, found no such"
    ):
        cifar10(tmp_path)


@pytest.mark.parametrize(
    "load, folder, name",
    [
        (cifar10, "cifar-10-batches-py", "data_batch_1"),
        (cifar10, "", "data_batch_1"),
        (cifar100, "cifar-100-python", "train"),
        (cifar100, "", "train"),
    ],
)
def test_python_version(load, folder: str, name: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / name).write_bytes(b"\x80\3")
    with pytest.raises(FileNotFoundError, match=f"{name}.bin: .*binary.*found the Python version"):
        load(tmp_path)


WRONG = {
    "cut short": (
        cifar10,
        "test_batch.bin",
        bytes(3073 * 2 - 1),
        "of 3073 bytes, found 6145 bytes",
    ),
    "empty": (cifar100, "test.bin", b"", "of 3074 bytes, found 0 bytes"),
    "CIFAR-100": (cifar10, "data_batch_2.bin", bytes(3074 * 4), "3073 bytes, found 12296 bytes"),
    "label": (cifar10, "data_batch_3.bin", b"\n" + bytes(3072), "labels from 0 to 9, found 10"),
    "coarse": (cifar100, "train.bin", b"\x14" + bytes(3073), "labels from 0 to 19, found 20"),
    "fine": (cifar100, "train.bin", b"\0d" + bytes(3072), "labels from 0 to 99, found 100"),
}


@pytest.mark.parametrize("load, name, content, message", WRONG.values(), ids=WRONG)
def test_wrong_file(load, name: str, content: bytes, message: str, tmp_path: Path) -> None:
    written.cifar10(tmp_path)
    written.cifar100(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name}: expected .*{message}"):
        load(tmp_path)
