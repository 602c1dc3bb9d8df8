"""Writes small files in the formats of the real data, following the formats' definitions."""

import struct
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("soundfile")
import soundfile  # noqa: E402


def idx(array: np.ndarray) -> bytes:
    sizes = b"".join(struct.pack(">I", size) for size in array.shape)
    return bytes([0, 0, 0x08, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def mnist(folder: Path, train: int = 40, test: int = 20) -> dict[str, np.ndarray]:
    """Writes the four files; returns their arrays by file name."""
    random = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", train), ("t10k", test)):
        arrays[f"{part}-images-idx3-ubyte"] = random.integers(0, 256, (count, 28, 28))
        arrays[f"{part}-labels-idx1-ubyte"] = random.integers(0, 10, count)
    for name, array in arrays.items():
        (folder / name).write_bytes(idx(array))
    return arrays


def cifar(path: Path, labels: list[tuple[int, ...]], images: np.ndarray) -> None:
    """Writes records: their labels, and their bytes of red, green and blue."""
    records = zip(labels, images.astype(np.uint8), strict=True)
    path.write_bytes(b"".join(bytes(label) + image.tobytes() for label, image in records))


def cifar10(folder: Path, each: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Writes the six files; returns their images and labels, the test batch last."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (6, each, 3, 32, 32))
    labels = random.integers(0, 10, (6, each))
    names = [*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin"]
    for name, x, y in zip(names, images, labels, strict=True):
        cifar(folder / name, [(label,) for label in y], x)
    return images, labels


def cifar100(folder: Path, train: int = 40, test: int = 20) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (train + test, 3, 32, 32))
    labels = random.integers(0, 100, train + test)
    pairs = [(n % 20, label) for n, label in enumerate(labels)]
    cifar(folder / "train.bin", pairs[:train], images[:train])
    cifar(folder / "test.bin", pairs[train:], images[train:])
    return images, labels


def tweets(folder: Path) -> None:
    vectors = {"</s>": "0 0", "UUUNKKK": "9 9", "i": "1 0.5", "win": "-2 2e-1", "#1": "3 3"}
    lines = [f"{word}\t{vector}" for word, vector in vectors.items()]
    (folder / "embeddings-twitter.txt").write_text("\n".join(lines) + "\n", "utf-8")
    for part, text in {
        "train": "i\tO\nwin\tV\n#1\t#\n\nnever\tR\n\n",
        "dev": "win\tV\n:)\tE\n\n",
        "devtest": "i\tO\n\nwin\tN",  # the last tweet without its blank line
    }.items():
        (folder / f"tweets-{part}.txt").write_text(text, "utf-8")


def sphere(path: Path, samples: np.ndarray, byte_order: str, rate: int = 16_000) -> None:
    """Writes a file as TIMIT's are: a header of 1024 bytes, then 16 bits for each sample."""
    header = f"""NIST_1A
   1024
database_id -s5 TIMIT
database_version -s3 1.0
utterance_id -s10 abc0_sx123
channel_count -i 1
sample_count -i {len(samples)}
sample_rate -i {rate}
sample_min -i {samples.min()}
sample_max -i {samples.max()}
sample_n_bytes -i 2
sample_byte_format -s2 {byte_order}
sample_sig_bits -i 16
end_head
""".encode().ljust(1024)
    path.write_bytes(header + samples.astype({"01": "<i2", "10": ">i2"}[byte_order]).tobytes())


def utterance(speaker: Path, sentence: str, samples: np.ndarray, phones: str) -> None:
    speaker.mkdir(parents=True, exist_ok=True)
    sound = speaker / f"{sentence}.WAV"
    soundfile.write(sound, samples.astype(np.int16), 16_000, format="NIST", subtype="PCM_16")
    (speaker / f"{sentence}.PHN").write_text(phones)


def timit(folder: Path, train: list[str], test: list[str]) -> None:
    """Writes a sentence SX and a sentence SA of each speaker: noise, in 8 frames."""
    random = np.random.default_rng(0)
    speakers = [("TRAIN", name) for name in train] + [("TEST", name) for name in test]
    for part, name in speakers:
        for sentence in ("SX1", "SA1"):
            samples = random.normal(0, 1000, 1600)
            phones = "0 500 h#\n500 900 q\n900 1600 ao\n"
            utterance(folder / part / "DR1" / name.upper(), sentence, samples, phones)
