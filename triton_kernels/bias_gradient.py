"""Starts the kernels that compute dx and sum its columns, in two stages: see ``column_sums``."""

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
    whole: bool  # whether columns % unit == 0
    consecutive: tuple[bool, ...]  # for dx and each input, whether its columns are
    columns: int
    columns_first: bool


def sum_type(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def specialize_add(dtype: torch.dtype) -> Specialization:
    pointers = pointer(sum_type(dtype), aligned=True), pointer(dtype, aligned=True)
    arguments = (*pointers, "i64", "i64")
    return Specialization(
        "column_sums.add_partial_sums", arguments, (PARTIAL_COLUMNS,), is_dependent=True
    )


def add_partial_sums(op: str, partial: Tensor, sums: Tensor) -> None:
    """Writes the sums of the columns of partial."""
    columns = sums.numel()
    grid = (-(-columns // PARTIAL_COLUMNS), 1, 1)
    launch(
        op, sums.dtype, specialize_add, grid, (partial, sums), (partial.numel() // columns, columns)
    )


def sum_blocks(
    op: str,
    specialize: Callable[[Key], Specialization],
    gate: str | None,
    matrices: Sequence[Tensor],
    others: Sequence[Tensor],
    partials: Sequence[Tensor],
    unit: int,
    numbers: tuple[float, ...] = (),
) -> None:
    """Writes dx, the first of the matrices, and the partial sums. ``others`` are operands without
    gaps, and ``unit`` columns are read at once. RuntimeError if an operand cannot be viewed as a
    matrix."""
    dx = matrices[0]
    columns = dx.size(-1)
    rows = dx.numel() // columns
    row_strides, column_strides = strides(matrices, columns)
    tiles = column_sum_tiles(rows, columns, dx.itemsize)
    key = Key(
        gate,
        dx.dtype,
        are_aligned((*matrices, *others), row_strides),
        columns % unit == 0,
        tuple([stride == 1 for stride in column_strides]),
        tiles.columns,
        tiles.columns_first,
    )
    integers = (rows, columns, tiles.block_rows, *row_strides, *column_strides)
    launch(op, key, specialize, tiles.grid, (*matrices, *others, *partials), (*numbers, *integers))


def sum_columns(
    op: str,
    specialize: Callable[[Key], Specialization],
    gate: str | None,
    results: tuple[Tensor, Tensor],
    inputs: Sequence[Tensor],
    others: Sequence[Tensor],
    unit: int,
    numbers: tuple[float, ...] = (),
) -> None:
    """Writes the results, dx and dbias."""
    dx, dbias = results
    if dx.numel() == 0:
        dbias.zero_()
        return
    columns = dbias.numel()
    blocks = column_sum_tiles(dx.numel() // columns, columns, dx.itemsize).blocks
    partial = torch.empty((blocks, columns), dtype=sum_type(dx.dtype), device=dx.device)
    with_matrices(op, specialize, gate, (dx, *inputs), others, (partial,), unit, numbers)
    add_partial_sums(op, partial, dbias)


def with_matrices(
    op: str,
    specialize: Callable[[Key], Specialization],
    gate: str | None,
    tensors: Sequence[Tensor],
    others: Sequence[Tensor],
    partials: Sequence[Tensor],
    unit: int,
    numbers: tuple[float, ...] = (),
) -> None:
    """``sum_blocks``, on copies of tensors that cannot be viewed as matrices."""
    try:
        sum_blocks(op, specialize, gate, tensors, others, partials, unit, numbers)
    except RuntimeError:
        dx, *inputs = tensors
        dense_dx = torch.empty_like(dx, memory_format=torch.contiguous_format)
        copies = [t.contiguous() for t in inputs]
        sum_blocks(op, specialize, gate, (dense_dx, *copies), others, partials, unit, numbers)
        dx.copy_(dense_dx)
