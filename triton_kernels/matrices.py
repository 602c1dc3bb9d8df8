"""Operands as matrices: their strides, their alignment, and their types for Triton."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gelu_kernels.triton_kernels.tuning import VECTOR_BYTES

TYPES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
}


def pointer(dtype: torch.dtype, aligned: bool) -> str:
    return f"*{TYPES[dtype]}{f':{VECTOR_BYTES}' if aligned else ''}"


def integer(dtype: torch.dtype, aligned: bool) -> str:
    """The type of a number of elements; an aligned number makes whole vectors."""
    return f"i64:{VECTOR_BYTES // dtype.itemsize}" if aligned else "i64"


def are_aligned(tensors: Sequence[Tensor | None], counts: Sequence[int]) -> bool:
    """Whether all addresses, and the sizes in bytes of these counts, are multiples of a vector."""
    bits = 0
    for n in counts:
        bits |= n
    bits *= tensors[0].itemsize
    for t in tensors:
        if t is not None:
            bits |= t.data_ptr()
    return bits % VECTOR_BYTES == 0


def strides(operands: Sequence[Tensor | None], columns: int) -> tuple[tuple[int, ...], ...]:
    """The operands' row strides and column strides; the last dimension has the columns.
    RuntimeError if an operand cannot be viewed as a matrix."""
    pairs = [(0, 1) if t is None else t.view(-1, columns).stride() for t in operands]
    return tuple(zip(*pairs, strict=True))


class Matrices(NamedTuple):
    """Operands as matrices of one shape, where elements correspond by place."""

    rows: int
    columns: int
    row_strides: tuple[int, ...]
    column_strides: tuple[int, ...]
    alike: bool  # all have the same strides and no gaps: one row


def matrices(operands: Sequence[Tensor | None], x: Tensor, keep_columns: bool) -> Matrices:
    """For operands of x's shape, the first without gaps. Orders the dimensions by x's strides; with
    ``keep_columns``, keeps them as they are. RuntimeError if that needs copies."""
    if not keep_columns:
        if len({t.stride() for t in operands if t is not None}) == 1:
            n = len(operands)
            return Matrices(1, x.numel(), (0,) * n, (1,) * n, alike=True)
        dims = sorted(range(x.dim()), key=x.stride, reverse=True)
        operands = [t if t is None else t.permute(dims) for t in operands]
        x = x.permute(dims)
    columns = x.size(-1)
    return Matrices(x.numel() // columns, columns, *strides(operands, columns), alike=False)
