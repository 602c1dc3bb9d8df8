"""Reads speech, and describes it: 26 features in each frame of 25 ms, at steps of 10 ms.

They are 12 mel-frequency cepstral coefficients, the logarithm of the energy, and the derivatives of
these 13.
"""

from pathlib import Path

import librosa
import numpy as np
import soundfile
import torch
from torch import Tensor

RATE = 16_000
WINDOW, HOP = 400, 160  # samples
FEATURES = 26

FRAMES = {"hop_length": HOP, "center": False}


def read(path: Path) -> np.ndarray:
    """Reads samples between -1 and 1, in any format of libsndfile, NIST SPHERE included."""
    try:
        samples, rate = soundfile.read(path, dtype="float32")
    except soundfile.LibsndfileError as error:
        raise ValueError(f"{path}: expected sound, found {error.error_string}") from error
    if rate != RATE or samples.ndim != 1:
        found = f"{rate} Hz in {samples[:1].size} channels"
        raise ValueError(f"{path}: expected {RATE} Hz in 1 channel, found {found}")
    if len(samples) < WINDOW:
        raise ValueError(f"{path}: expected {WINDOW} samples or more, found {len(samples)}")
    return samples


def features(samples: np.ndarray) -> Tensor:
    """(frames, 26). Frame t has the samples from t HOP to t HOP + WINDOW."""
    # HTK usually takes 26 triangles on the mel scale. The energy replaces coefficient 0.
    mfcc = librosa.feature.mfcc(
        y=samples, sr=RATE, n_mfcc=13, n_mels=26, n_fft=WINDOW, window="hamming", **FRAMES
    )
    rms = librosa.feature.rms(y=samples, frame_length=WINDOW, **FRAMES)
    energy = np.log(np.maximum(WINDOW * rms**2, 1e-10))  # digital silence has none
    static = np.concatenate([mfcc[1:], energy])
    # By regression over two frames on each side, the end frames repeated, as HTK does.
    derivatives = librosa.feature.delta(static, width=5, mode="nearest")
    return torch.from_numpy(np.concatenate([static, derivatives]).T).float()
