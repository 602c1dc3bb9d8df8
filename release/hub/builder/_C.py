"""Replaces the extension module gelu_kernels._C by torch.ops: the library that the Hub's builder
makes is no Python module."""

from collections.abc import Callable

import torch


def __getattr__(name: str) -> Callable[..., object]:
    """An operator that takes all its arguments by position."""
    try:
        operator = getattr(torch.ops.gelu_kernels, name).default
    except AttributeError as error:
        raise AttributeError(f"module {__name__} has no attribute {name}") from error
    names = [argument.name for argument in operator._schema.arguments]

    def call(*arguments: object) -> object:
        return operator(**dict(zip(names, arguments, strict=True)))

    globals()[name] = call  # for the next time
    return call
