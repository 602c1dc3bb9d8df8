"""Checks the arguments that Python handles itself; C++ checks all others."""

from contextlib import suppress
from typing import SupportsFloat, SupportsIndex


def check_type(function: str, name: str, value: object, expected: type) -> None:
    """Raises a TypeError in the words of PyTorch's functions and of csrc/ops/python.cpp."""
    if not isinstance(value, expected):
        raise TypeError(
            f"{function}(): argument '{name}' must be {expected.__name__}, not "
            f"{type(value).__name__}"
        )


def number(op: str, name: str, value: object) -> float:
    """The value as a float: whatever ``float`` takes, except text."""
    if isinstance(value, (SupportsFloat, SupportsIndex)) and not isinstance(value, (str, bytes)):
        with suppress(TypeError):  # an array of several numbers
            return float(value)
    raise TypeError(f"gelu_kernels::{op}: {name} must be a number or a tensor, got {value!r}")
