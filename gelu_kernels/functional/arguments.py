"""The types of arguments that Python takes itself. Those of all others are checked in C++."""

from contextlib import suppress
from typing import SupportsFloat, SupportsIndex


def check_type(function: str, name: str, value: object, expected: type) -> None:
    """As PyTorch's functions say it, and csrc/ops/python.cpp."""
    if not isinstance(value, expected):
        raise TypeError(
            f"{function}(): argument '{name}' must be {expected.__name__}, not "
            f"{type(value).__name__}"
        )


def number(op: str, name: str, value: object) -> float:
    """What ``float`` takes, but for text."""
    if isinstance(value, (SupportsFloat, SupportsIndex)) and not isinstance(value, (str, bytes)):
        with suppress(TypeError):  # an array of several numbers
            return float(value)
    raise TypeError(f"gelu_kernels::{op}: {name} must be a number or a tensor, got {value!r}")
