"""The seed of random bits as a kernel's argument: its address on the device, or a CPU's value."""

from typing import NamedTuple

from torch import Tensor


class Seed(NamedTuple):
    type: str | None
    tensors: tuple[Tensor | None, ...]  # the last of the kernel's
    numbers: tuple[int, ...]  # the first


def is_by_value(seed: Tensor, x: Tensor) -> bool:
    return seed.device != x.device


def argument(seed: Tensor | None, x: Tensor) -> Seed:
    if seed is None:
        return Seed(None, (None,), ())
    if is_by_value(seed, x):
        return Seed("i64", (), (int(seed),))
    return Seed("*i64", (seed,), ())
