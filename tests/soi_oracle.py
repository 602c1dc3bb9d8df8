"""The SOI map's random scheme, written a second time, in NumPy.

Only the thresholds T come from the kernels; test_soi_random.py checks those against mpmath.
"""

import numpy as np
import torch
from torch import Tensor

from gelu_kernels import _C

LOW = np.uint64(0xFFFFFFFF)


def philox(counter: np.ndarray, key: tuple[int, int]) -> np.ndarray:
    """Philox4x32-10 of counters in rows of four words."""
    c = list(counter.astype(np.uint64).T)
    k0, k1 = key
    for _ in range(10):
        p0, p2 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            (p2 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0),
            p2 & LOW,
            (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1),
            p0 & LOW,
        ]
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return np.stack(c, axis=1)


def words(seed: int, index: np.ndarray) -> np.ndarray:
    """The 32 random bits of the elements with these global indices."""
    group = index.astype(np.uint64) >> np.uint64(2)
    zero = np.zeros_like(group)
    counter = np.stack([group & LOW, group >> np.uint64(32), zero, zero], axis=1)
    seed %= 2**64
    drawn = philox(counter, (seed % 2**32, seed // 2**32))
    return drawn[np.arange(len(index)), (index.astype(np.uint64) & np.uint64(3)).astype(np.int64)]


def global_index(n: int, offset: int = 0, row_length: int = 0, row_stride: int = 0) -> np.ndarray:
    i = np.arange(n)
    if row_length:
        i = i // row_length * row_stride + i % row_length
    return i + offset


def kept(x: Tensor, bias: Tensor | None, seed: int, gate: str, *index: int) -> Tensor:
    """m, as booleans in the shape of x."""
    real = torch.float64 if x.dtype == torch.float64 else torch.float32
    total = x.detach().cpu().to(real) + (0 if bias is None else bias.detach().cpu().to(real))
    total = total.float().reshape(-1)
    u = words(seed, global_index(x.numel(), *index))
    below = u < _C.soi_thresholds(total, gate).numpy().astype(np.uint64)
    return torch.from_numpy(below ^ ~(total <= 0).numpy()).view(x.shape)


def select(m: Tensor, t: Tensor) -> Tensor:
    return torch.where(m.to(t.device), t, torch.zeros((), dtype=t.dtype, device=t.device))


def expected(
    x: Tensor, bias: Tensor | None, seed: int, gate: str, *index: int
) -> tuple[Tensor, Tensor]:
    """What soi_forward gives."""
    m = kept(x, bias, seed, gate, *index)
    real = torch.float64 if x.dtype == torch.float64 else torch.float32
    total = x if bias is None else (x.to(real) + bias.to(real)).to(x.dtype)
    return select(m, total), pack(m).to(x.device)


def pack(m: Tensor) -> Tensor:
    return torch.from_numpy(np.packbits(m.reshape(-1).cpu().numpy(), bitorder="little"))


def unpack(mask: Tensor, n: int) -> np.ndarray:
    return np.unpackbits(mask.cpu().numpy(), bitorder="little")[:n]
