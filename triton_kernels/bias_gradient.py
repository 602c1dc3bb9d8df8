"""Starts the kernels that make dx and sum its columns, in two stages: see ``column_sums``."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gelu_kernels.triton_kernels.launch import Specialization, launch
from gelu_kernels.triton_kernels.matrices import are_aligned, pointer, strides
from gelu_kernels.triton_kernels.tuning import PARTIAL_COLUMNS, column_sum_tiles


class Key(NamedTuple):
    gate: str | None
    dtype: torch.dtype
    aligned: bool
    whole: bool  # the columns are whole units
    consecutive: tuple[bool, ...]  # of dx and the inputs, those whose columns are
    columns: int
    columns_first: bool


def sum_type(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def specialize_add(dtype: torch.dtype) -> Specialization:
    pointers = pointer(sum_type(dtype), aligned=True), pointer(dtype, aligned=True)
    arguments = (*pointers, "i64", "i64")
    return Specialization("column_sums.add_partial_sums", arguments, (PARTIAL_COLUMNS,))


def sum_columns(
    op: str,
    specialize: Callable[[Key], Specialization],
    gate: str | None,
    results: tuple[Tensor, Tensor],
    inputs: Sequence[Tensor],
    other: Tensor,
    unit: int,
) -> None:
    """Writes dx and dbias, the results. ``other`` is an operand without gaps, and ``unit`` how many
    columns are read at once."""
    dx, dbias = results
    if dx.numel() == 0:
        dbias.zero_()
        return
    columns = dbias.numel()
    rows = dx.numel() // columns
    matrices = (dx, *inputs)
    try:
        row_strides, column_strides = strides(matrices, columns)
    except RuntimeError:
        copies = [t.contiguous() for t in inputs]
        dense_dx = torch.empty_like(dx, memory_format=torch.contiguous_format)
        sum_columns(op, specialize, gate, (dense_dx, dbias), copies, other, unit)
        dx.copy_(dense_dx)
        return
    tiles = column_sum_tiles(rows, columns, dx.itemsize)
    partial = torch.empty((tiles.blocks, columns), dtype=sum_type(dx.dtype), device=dx.device)
    key = Key(
        gate,
        dx.dtype,
        are_aligned([t for t in (*matrices, other) if t.dtype == dx.dtype], row_strides),
        columns % unit == 0,
        tuple([stride == 1 for stride in column_strides]),
        tiles.columns,
        tiles.columns_first,
    )
    integers = (rows, columns, tiles.block_rows, *row_strides, *column_strides)
    launch(op, key, specialize, tiles.grid, (*matrices, other, partial), integers)
    add_grid = (-(-columns // PARTIAL_COLUMNS), 1, 1)
    launch(op, dx.dtype, specialize_add, add_grid, (partial, dbias), tuple(partial.shape))
