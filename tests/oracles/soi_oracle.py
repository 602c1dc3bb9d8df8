"""The random scheme of the SOI map and of dropout, written a second time, in NumPy.

Only the thresholds T come from the kernels; test_soi_random.py checks those against mpmath.
"""

from fractions import Fraction
from functools import lru_cache
from math import prod

import numpy as np
import torch
from torch import Tensor

from gelu_kernels import _C

LOW = np.uint64(0xFFFFFFFF)


def philox(counter: np.ndarray, key: tuple[int, int]) -> np.ndarray:
    """Philox4x32-7 of counters in rows of four words."""
    c = list(counter.astype(np.uint64).T)
    k0, k1 = key
    for _ in range(7):
        p0, p2 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            (p2 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0),
            p2 & LOW,
            (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1),
            p0 & LOW,
        ]
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return np.stack(c, axis=1)


def halves(seed: int, index: np.ndarray, part: int) -> np.ndarray:
    """16 random bits of the elements with these global indices."""
    index = index.astype(np.uint64)
    octet, place = index // np.uint64(8), (index % np.uint64(8)).astype(np.int64)
    third, zero = np.full_like(octet, part), np.zeros_like(octet)
    counter = np.stack([octet & LOW, octet >> np.uint64(32), third, zero], axis=1)
    seed %= 2**64
    drawn = philox(counter, (seed % 2**32, seed // 2**32))
    word = drawn[np.arange(len(index)), place // 2]
    return np.where(place % 2 == 0, word & np.uint64(0xFFFF), word >> np.uint64(16))


def words(seed: int, index: np.ndarray) -> np.ndarray:
    """The 32 random bits of the elements with these global indices."""
    return halves(seed, index, 0) << np.uint64(16) | halves(seed, index, 1)


def global_index(n: int, offset: int = 0, row_length: int = 0, row_stride: int = 0) -> np.ndarray:
    i = np.arange(n)
    if row_length:
        i = i // row_length * row_stride + i % row_length
    return i + offset


@lru_cache(maxsize=2)  # a test of every gate draws them once
def words_of(seed: int, n: int, *index: int) -> np.ndarray:
    """The random bits of a tensor's elements in row-major order."""
    return words(seed, global_index(n, *index))


def wide(t: Tensor) -> np.ndarray:
    """In the precision of the kernels."""
    real = torch.float64 if t.dtype == torch.float64 else torch.float32
    return t.detach().cpu().to(real).resolve_neg().numpy()


def standard_score(x: Tensor, loc: Tensor, scale: Tensor) -> np.ndarray:
    """z, each operation rounded."""
    scale = wide(scale)
    tiny, half = np.finfo(scale.dtype).tiny, scale.dtype.type(0.5)
    inverse = np.where(scale < tiny, np.inf, 1 / np.minimum(scale, half / tiny))
    difference = wide(x) - wide(loc)
    return np.where(difference == 0, 0, difference * inverse.astype(scale.dtype))


def kept(
    x: Tensor,
    bias: Tensor | None,
    seed: int,
    gate: str,
    *index: int,
    loc: Tensor | None = None,
    scale: Tensor | None = None,
) -> Tensor:
    """m, as booleans in the shape of x."""
    with np.errstate(all="ignore"):  # there are infinities and NaN
        total = wide(x) + (0 if bias is None else wide(bias))
        if loc is not None:
            total = standard_score(x, loc, scale)
        total = torch.from_numpy(total.astype(np.float32).reshape(-1))
    u = words_of(seed, x.numel(), *index)
    positive = ~(total <= 0).numpy()
    in_tail = np.where(positive, LOW - u, u) < _C.soi_thresholds(total, gate).numpy().astype(
        np.uint64
    )
    return torch.from_numpy(in_tail ^ positive).view(x.shape)


def kept_words(x: Tensor, gate: str) -> np.ndarray:
    """How many of the 2^32 words keep x; they are the smallest."""
    thresholds = _C.soi_thresholds(x.float(), gate).numpy()
    return np.where((x <= 0).numpy(), thresholds, 2**32 - thresholds)


def quantile(gate: str, words: np.ndarray) -> Tensor:
    """The float32 numbers that `words` words keep, to a float32's spacing, by bisection."""
    low, high = torch.full((2, len(words)), 2.0**32)
    low = -low
    for _ in range(100):
        middle = (low + high) / 2
        is_below = torch.from_numpy(kept_words(middle, gate) < words)
        low, high = torch.where(is_below, middle, low), torch.where(is_below, high, middle)
    return high


def not_dropped(shape: tuple[int, ...], seed: int, p: float, *index: int) -> Tensor:
    """The m of dropout."""
    below = words_of(seed, prod(shape), *index) < round(Fraction(p) * 2**32)
    return torch.from_numpy(~below).view(shape)


def select(m: Tensor, t: Tensor) -> Tensor:
    return torch.where(m.to(t.device), t, torch.zeros((), dtype=t.dtype, device=t.device))


def expected(
    x: Tensor, bias: Tensor | None, seed: int, gate: str, *index: int, **parameters: Tensor
) -> tuple[Tensor, Tensor]:
    """The results of soi_forward or, with loc and scale, of soi_cdf_forward."""
    m = kept(x, bias, seed, gate, *index, **parameters)
    real = torch.float64 if x.dtype == torch.float64 else torch.float32
    total = x if bias is None else (x.to(real) + bias.to(real)).to(x.dtype)
    return select(m, total), pack(m).to(x.device)


def pack(m: Tensor) -> Tensor:
    return torch.from_numpy(np.packbits(m.reshape(-1).cpu().numpy(), bitorder="little"))


def unpack(mask: Tensor, n: int) -> np.ndarray:
    return np.unpackbits(mask.cpu().numpy(), bitorder="little")[:n]
