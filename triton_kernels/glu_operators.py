"""The core operators of GLUs by Triton kernels: y = g(x) up, with a tensor each for x and up, or
with one of which they are the halves."""

from typing import NamedTuple

import torch
from torch import Tensor

from gelu_kernels import _C
from gelu_kernels.triton_kernels import operators
from gelu_kernels.triton_kernels.configurations import VECTOR_BYTES, map_tiles
from gelu_kernels.triton_kernels.launch import Specialization, Type, launch


def glu_forward(x: Tensor, up: Tensor, gate: str) -> Tensor:
    _C.check_glu("glu_forward", x, up, gate)
    y = torch.empty_like(x)
    # The kernel multiplies a function of x by dy; here, by up.
    operators.map_rows("glu_forward", "value", gate, y, None, up, x, None)
    return y


def glu_halves_forward(x: Tensor, gate: str) -> Tensor:
    op = "glu_halves_forward"
    _C.check_glu_halves(op, x, gate)
    gated, up = x.chunk(2, -1)
    y = torch.empty_like(gated, memory_format=torch.contiguous_format)
    operators.map_rows(op, "value", gate, y, None, up, gated, None)
    return y


class BackwardKey(NamedTuple):
    gate: str
    dtype: torch.dtype
    aligned: bool
    aligned_columns: bool
    consecutive: tuple[bool, ...]  # of dx, dup, dy, x and up, those whose columns are
    rows: int
    columns: int
    columns_first: bool


def _specialize_backward(key: BackwardKey) -> Specialization:
    arguments: tuple[Type, ...] = (
        *[operators.pointer(key.dtype, key.aligned)] * 5,
        "i64",
        operators.integer(key.dtype, key.aligned_columns),
        *[operators.integer(key.dtype, key.aligned)] * 5,
        *(1 if consecutive else "i64" for consecutive in key.consecutive),
    )
    return Specialization(
        "glu.glu_backward",
        arguments,
        key[5:],
        key.gate,
        ("value", "derivative"),
        operators.TYPES[key.dtype],
    )


def _backward(
    op: str,
    gate: str,
    dx: Tensor,
    dup: Tensor,
    dy: Tensor,
    x: Tensor,
    up: Tensor,
    keep_columns: bool = False,
) -> None:
    if x.numel() == 0:
        return
    operands = (dx, dup, dy, x, up)
    try:
        m = operators.matrices(operands, x, keep_columns)
    except RuntimeError:
        inputs = [t.contiguous() for t in (dy, x, up)]
        packed = [torch.empty_like(t) for t in inputs[1:]]
        _backward(op, gate, *packed, *inputs)
        dx.copy_(packed[0])
        dup.copy_(packed[1])
        return
    tiles = map_tiles(m.rows, m.columns, x.itemsize, inputs=3)
    key = BackwardKey(
        gate,
        x.dtype,
        operators.are_aligned(operands, m.row_strides),
        not m.alike and m.columns * x.itemsize % VECTOR_BYTES == 0,
        tuple([stride == 1 for stride in m.column_strides]),
        tiles.rows,
        tiles.columns,
        tiles.columns_first,
    )
    integers = (m.rows, m.columns, *m.row_strides, *m.column_strides)
    launch(op, key, _specialize_backward, tiles.grid, operands, integers)


def glu_backward(dy: Tensor, x: Tensor, up: Tensor, gate: str) -> tuple[Tensor, Tensor]:
    _C.check_glu("glu_backward", x, up, gate, dy=dy)
    dx, dup = torch.empty_like(x), torch.empty_like(up)
    _backward("glu_backward", gate, dx, dup, dy, x, up)
    return dx, dup


def glu_halves_backward(dy: Tensor, x: Tensor, gate: str) -> Tensor:
    op = "glu_halves_backward"
    _C.check_glu_halves(op, x, gate, dy=dy)
    dx = torch.empty_like(x)
    # Halves have gaps: that they lie alike is not enough for one row.
    _backward(op, gate, *dx.chunk(2, -1), dy, *x.chunk(2, -1), keep_columns=True)
    return dx
