"""The codes of a derivative, written a second time, in NumPy."""

import numpy as np
import torch
from torch import Tensor

from tests.oracles import oracle, soi_oracle

LEVELS, ZERO, NAN = {8: 201, 4: 10}, {8: 26, 4: 2}, {8: 255, 4: 15}

# Half a step, and what float32 adds to it.
BOUND = {bits: 0.5 / levels + 1e-6 for bits, levels in LEVELS.items()}


def unpack(code: Tensor, n: int, bits: int) -> np.ndarray:
    """The codes of `n` elements, one number each."""
    codes = code.cpu().numpy()
    if bits == 4:
        codes = np.stack([codes & 15, codes >> 4], 1).reshape(-1)
    return codes[:n].astype(np.int64)


def pack(codes: np.ndarray, bits: int) -> Tensor:
    codes = codes.astype(np.uint8).reshape(-1)
    if bits == 4:
        codes = np.append(codes, np.zeros(len(codes) % 2, np.uint8))
        codes = codes[::2] | codes[1::2] << 4
    return torch.from_numpy(codes)


def decoded(codes: np.ndarray, bits: int) -> np.ndarray:
    """The derivatives that codes stand for, in float64."""
    return np.where(codes == NAN[bits], np.nan, (codes - ZERO[bits]) / LEVELS[bits])


def derivative(x: Tensor, bias: Tensor | None, gate: str) -> np.ndarray:
    """g'(x + bias), the sum as the kernels round it, flat."""
    with np.errstate(invalid="ignore"):  # of infinities
        total = soi_oracle.wide(x) + (0 if bias is None else soi_oracle.wide(bias))
    return oracle.reference(gate, oracle.DERIVATIVE, total.astype(np.float64).reshape(-1))


def codes(
    x: Tensor,
    bias: Tensor | None,
    gate: str,
    bits: int,
    seed: int | None,
    ours: Tensor,
    *index: int,
) -> np.ndarray:
    """The nearest codes of g'(x + bias), or with a seed random ones. Where an error in the last
    places of the derivative decides between two neighbours, either is right, and it is ours."""
    exact = derivative(x, bias, gate)
    u = 0.5
    if seed is not None:
        words = soi_oracle.words_of(seed, exact.size, *index)
        u = (words & np.uint64(0xFFFF)).astype(np.float64) / 2**16
    code = exact * LEVELS[bits] + ZERO[bits] + u
    error = LEVELS[bits] * (2.0**-11 if x.dtype.itemsize == 2 else 2.0**-20)
    with np.errstate(invalid="ignore"):  # of NaN
        low, high = np.floor(code - error), np.floor(code + error)
    found = np.clip(unpack(ours, exact.size, bits), low, high)
    return np.where(np.isnan(exact), NAN[bits], found).astype(np.int64)
