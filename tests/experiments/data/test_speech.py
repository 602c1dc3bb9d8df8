"""experiments/data/speech.py: samples of a file, and features of frames."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("librosa")
import scipy.fft  # noqa: E402
import soundfile  # noqa: E402

from experiments.data import speech  # noqa: E402
from tests.experiments.data import written_files as written  # noqa: E402

# In a new environment librosa compiles functions for 20 s before it computes features.
of_features = pytest.mark.slow
NOISE = np.random.default_rng(0).normal(0, 1000, 4000).astype(np.int16)


def triangles() -> np.ndarray:
    """26 triangles of unit area at the 201 frequencies of a frame.

    Their corners are equally spaced on Slaney's mel scale (1998): linear up to 1 kHz, which is 15,
    then 27 steps for each factor of 6.4.
    """
    mel = np.linspace(0, 15 + 27 * np.log(8) / np.log(6.4), 28)
    corners = np.where(mel < 15, mel * 200 / 3, 1000 * 6.4 ** ((mel - 15) / 27))
    rows = [
        np.interp(
            np.arange(201) * 40, corners[i : i + 3], [0, 2 / (corners[i + 2] - corners[i]), 0]
        )
        for i in range(26)
    ]
    return np.array(rows)


def cepstra(samples: np.ndarray) -> np.ndarray:
    """12 coefficients of each frame, by their definition in float64."""
    frames = [samples[start : start + 400] for start in range(0, len(samples) - 399, 160)]
    hamming = 0.54 - 0.46 * np.cos(2 * np.pi * np.arange(400) / 400)
    power = np.abs(scipy.fft.rfft(np.array(frames) * hamming)) ** 2
    decibels = 10 * np.log10(power @ triangles().T)
    return scipy.fft.dct(decibels, norm="ortho")[:, 1:13]


def derivatives(static: np.ndarray) -> np.ndarray:
    """By the regression of the HTK book on delta coefficients, with 2 on each side."""
    result = np.zeros_like(static)
    for t in range(len(static)):
        for distance in (1, 2):
            after = static[min(t + distance, len(static) - 1)]
            before = static[max(t - distance, 0)]
            result[t] += distance * (after - before) / (2 * (1 + 4))
    return result


@of_features
def test_features() -> None:
    samples = (NOISE / 32768).astype(np.float32)
    found = speech.features(samples)
    assert found.shape == (23, 26) and found.dtype == torch.float32
    squares = [(samples[160 * t : 160 * t + 400].astype(float) ** 2).sum() for t in range(23)]
    static = np.column_stack([cepstra(samples.astype(float)), np.log(squares)])
    expected = np.column_stack([static, derivatives(static)])
    # The coefficients are up to 40, and the library's float32 is within 1e-4 of them.
    assert np.abs(found.numpy() - expected).max() < 1e-3


@of_features
@pytest.mark.parametrize("length, frames", [(400, 1), (559, 1), (560, 2), (1200, 6)])
def test_short_utterances(length: int, frames: int) -> None:
    found = speech.features((NOISE[:length] / 32768).astype(np.float32))
    assert found.shape == (frames, 26) and found.isfinite().all()


@of_features
def test_silence() -> None:
    assert speech.features(np.zeros(800, np.float32)).isfinite().all()


@pytest.mark.parametrize("byte_order", ["01", "10"])
def test_sphere(byte_order: str, tmp_path: Path) -> None:
    written.sphere(tmp_path / "SX1.WAV", NOISE, byte_order)
    samples = speech.read(tmp_path / "SX1.WAV")
    assert samples.dtype == np.float32 and np.array_equal(samples * 32768, NOISE)


def stereo(path: Path) -> None:
    soundfile.write(path, np.stack([NOISE, NOISE], 1), 16_000, format="WAV")


SOUNDS = {
    "not sound": (lambda path: path.write_bytes(b"hello" * 1000), "sound, found .*not recogni"),
    "empty": (lambda path: path.write_bytes(b""), "sound, found"),
    "header": (lambda path: path.write_bytes(path.read_bytes()[:500]), "sound, found"),
    "rate": (lambda path: written.sphere(path, NOISE, "01", 8000), "16000 Hz .*found 8000 Hz"),
    "channels": (stereo, "1 channel, found 16000 Hz in 2 channels"),
    "short": (lambda path: written.sphere(path, NOISE[:399], "01"), "400 samples .*found 399"),
}


@pytest.mark.parametrize("write, message", SOUNDS.values(), ids=SOUNDS)
def test_wrong_sound(write: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "SX1.WAV"
    written.sphere(path, NOISE, "01")
    write(path)
    with pytest.raises(ValueError, match=f"{path}: expected .*{message}"):
        speech.read(path)
