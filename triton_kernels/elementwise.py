"""Starts the kernels that go over elements in tiles, for tensors of any layout."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gelu_kernels.triton_kernels.launch import Specialization, Type, launch
from gelu_kernels.triton_kernels.matrices import TYPES, are_aligned, integer, matrices, pointer
from gelu_kernels.triton_kernels.tuning import VECTOR_BYTES, map_tiles


class Key(NamedTuple):
    kernel: str
    gate: str
    orders: tuple[str, ...]
    dtype: torch.dtype
    operands: tuple[bool, ...]  # which are given
    aligned: bool
    aligned_columns: bool
    consecutive: tuple[bool, ...]  # for each matrix, whether its columns are
    rows: int
    columns: int
    columns_first: bool


def specialize(key: Key) -> Specialization:
    operand = pointer(key.dtype, key.aligned)
    arguments: tuple[Type, ...] = (
        *(operand if given else None for given in key.operands),
        "i64",
        integer(key.dtype, key.aligned_columns),
        *[integer(key.dtype, key.aligned)] * len(key.consecutive),
        *(1 if consecutive else "i64" for consecutive in key.consecutive),
    )
    precision = TYPES[key.dtype]
    # The gate of a stored x, with no operand but x and the result.
    is_value = key.orders == ("value",) and sum(key.operands) == 2
    if is_value and precision == "bf16":
        precision = "fast_bf16"  # see csrc/gates/arithmetic.h
    if key.orders == ("second_derivative",) and key.dtype.itemsize == 2:
        precision = "fp32"
    compiled_in = key.rows, key.columns, key.columns_first
    return Specialization(
        key.kernel, arguments, compiled_in, key.gate, key.orders, precision, is_value
    )


def over_tiles(
    op: str,
    kernel: str,
    gate: str,
    orders: tuple[str, ...],
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor | None],
    x: Tensor,
    *rows: Tensor | None,
    keep_columns: bool = False,
) -> None:
    """Starts a kernel over outputs and inputs of x's shape, the first output without gaps. ``rows``
    are vectors that every row of x shares; they need ``keep_columns``, which keeps the last
    dimension of x last."""
    if x.numel() == 0:
        return
    operands = (*outputs, *inputs)
    try:
        m = matrices(operands, x, keep_columns)
    except RuntimeError:
        copies = [t if t is None else t.contiguous() for t in inputs]
        results = [torch.empty_like(t, memory_format=torch.contiguous_format) for t in outputs]
        over_tiles(
            op,
            kernel,
            gate,
            orders,
            results,
            copies,
            results[0],
            *rows,
            keep_columns=keep_columns,
        )
        for out, result in zip(outputs, results, strict=True):
            out.copy_(result)
        return
    tensors = (*operands, *rows)
    given = tuple([t is not None for t in tensors])
    read = sum(given[len(outputs) : len(operands)])
    # Two vectors of each of three operands have room in 16 bits: predicted for the double backward,
    # 91 % of a copy's speed in place of 80.
    tiled = min(read, 2) if x.itemsize == 2 else read
    along = sum(t is not None and t.dim() > 0 for t in rows)
    tiles = map_tiles(m.rows, m.columns, x.itemsize, tiled, along)
    key = Key(
        kernel,
        gate,
        orders,
        x.dtype,
        given,
        are_aligned(tensors, m.row_strides),
        not m.alike and m.columns * x.itemsize % VECTOR_BYTES == 0,
        tuple([stride == 1 for stride in m.column_strides]),
        tiles.rows,
        tiles.columns,
        tiles.columns_first,
    )
    integers = (m.rows, m.columns, *m.row_strides, *m.column_strides)
    launch(op, key, specialize, tiles.grid, tensors, integers)
