"""Operands as matrices: their strides and alignment, and what Triton is told of them."""

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
    """A count of elements, aligned if it makes whole vectors."""
    return f"i64:{VECTOR_BYTES // dtype.itemsize}" if aligned else "i64"


def are_aligned(tensors: Sequence[Tensor | None], counts: Sequence[int]) -> bool:
    """Whether all addresses, and the sizes of so many elements, are multiples of a vector's."""
    bits = 0
    for n in counts:
        bits |= n
    bits *= tensors[0].itemsize
    for t in tensors:
        if t is not None:
            bits |= t.data_ptr()
    return bits % VECTOR_BYTES == 0


def strides(operands: Sequence[Tensor | None], columns: int) -> tuple[tuple[int, ...], ...]:
    """Of the rows and of the columns, which the last dimension has. RuntimeError if an operand is
    no matrix without a copy."""
    pairs = [(0, 1) if t is None else t.view(-1, columns).stride() for t in operands]
    return tuple(zip(*pairs, strict=True))


class Matrices(NamedTuple):
    """Operands as matrices in which an element has the same place."""

    rows: int
    columns: int
    row_strides: tuple[int, ...]
    column_strides: tuple[int, ...]
    alike: bool  # one row: they all have the same strides, and no gaps


def matrices(operands: Sequence[Tensor | None], x: Tensor, keep_columns: bool) -> Matrices:
    """Of operands of x's shape, the first without gaps. The dimensions are in an order that suits
    x; with ``keep_columns``, the last one stays. RuntimeError if that takes copies."""
    if not keep_columns:
        if len({t.stride() for t in operands if t is not None}) == 1:
            n = len(operands)
            return Matrices(1, x.numel(), (0,) * n, (1,) * n, alike=True)
        dims = sorted(range(x.dim()), key=x.stride, reverse=True)
        operands = [t if t is None else t.permute(dims) for t in operands]
        x = x.permute(dims)
    columns = x.size(-1)
    return Matrices(x.numel() // columns, columns, *strides(operands, columns), alike=False)
