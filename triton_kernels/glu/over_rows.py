"""Starts the kernels of ``rows``, for tensors of any layout."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gelu_kernels.triton_kernels.launch import Specialization, Type, launch
from gelu_kernels.triton_kernels.matrices import TYPES, are_aligned, integer, matrices, pointer
from gelu_kernels.triton_kernels.tuning import VECTOR_BYTES, glu_sum_tiles, map_tiles

ORDERS = {"rows_forward": ("value",), "rows_backward": ("value", "derivative")}


class Options(NamedTuple):
    """The options of a GLU: its weights, clamp and offset."""

    weight: Tensor | None
    gate: str
    limit: float | None
    up_offset: float

    @property
    def are_plain(self) -> bool:
        return self.weight is None and self.limit is None and self.up_offset == 0


class Key(NamedTuple):
    kernel: str
    gate: str
    dtype: torch.dtype
    operands: tuple[bool, ...]  # which of the matrices and vectors are given
    limited: bool  # whether there is a limit
    aligned: bool
    whole: bool  # whether rows consist of whole vectors
    consecutive: tuple[bool, ...]  # for each matrix, whether its columns are
    rows: int
    columns: int
    columns_first: bool


def specialize(key: Key) -> Specialization:
    number = "fp64" if key.dtype == torch.float64 else "fp32"
    operand = pointer(key.dtype, key.aligned)
    arguments: tuple[Type, ...] = (
        *(operand if given else None for given in key.operands),
        number if key.limited else None,
        number,
        "i64",
        integer(key.dtype, key.whole),
        *[integer(key.dtype, key.aligned)] * len(key.consecutive),
        *(1 if consecutive else "i64" for consecutive in key.consecutive),
    )
    return Specialization(
        f"glu.rows.{key.kernel}",
        arguments,
        (key.rows, key.columns, key.columns_first),
        key.gate,
        ORDERS[key.kernel],
        TYPES[key.dtype],
    )


def over_rows(
    op: str,
    kernel: str,
    outputs: Sequence[Tensor],
    dweight: Sequence[Tensor | None],
    inputs: Sequence[Tensor],
    options: Options,
) -> None:
    """``dweight`` is empty for kernels without it."""
    first, *_ = outputs
    for sums in dweight:
        if sums is not None and (first.numel() == 0 or not sums.is_contiguous()):
            dense = torch.zeros_like(sums, memory_format=torch.contiguous_format)
            if first.numel():
                over_rows(op, kernel, outputs, (dense,), inputs, options)
            sums.copy_(dense)
            return
    if first.numel() == 0:
        return
    weight = None if options.weight is None else options.weight.contiguous()
    has_rows = weight is not None or not first.is_contiguous()
    operands = (*outputs, *inputs)
    try:
        m = matrices(operands, first, keep_columns=has_rows)
    except RuntimeError:
        dense = [torch.empty_like(t, memory_format=torch.contiguous_format) for t in outputs]
        over_rows(op, kernel, dense, dweight, [t.contiguous() for t in inputs], options)
        for out, result in zip(outputs, dense, strict=True):
            out.copy_(result)
        return
    is_sum = any(t is not None for t in dweight)
    tiles_for = glu_sum_tiles if is_sum else map_tiles
    tiles = tiles_for(m.rows, m.columns, first.itemsize, len(inputs))
    tensors = (*outputs, *dweight, *inputs, weight)
    key = Key(
        kernel,
        options.gate,
        first.dtype,
        tuple([t is not None for t in tensors]),
        options.limit is not None,
        are_aligned(tensors, m.row_strides),
        m.columns * first.itemsize % VECTOR_BYTES == 0,
        tuple([stride == 1 for stride in m.column_strides]),
        tiles.rows,
        tiles.columns,
        tiles.columns_first,
    )
    integers = (m.rows, m.columns, *m.row_strides, *m.column_strides)
    launch(op, key, specialize, tiles.grid, tensors, (options.limit, options.up_offset, *integers))
