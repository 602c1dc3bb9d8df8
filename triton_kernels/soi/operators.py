"""The core operators of the SOI map, which write their first arguments, the results."""

from typing import NamedTuple

import torch
from torch import Tensor

from gelu_kernels.triton_kernels import bias_gradient, tuning
from gelu_kernels.triton_kernels.launch import Specialization, launch
from gelu_kernels.triton_kernels.matrices import are_aligned, integer, pointer
from gelu_kernels.triton_kernels.seed import argument
from gelu_kernels.triton_kernels.tuning import draw_tiles, octet_tiles

contiguous = torch.contiguous_format


class ForwardKey(NamedTuple):
    gate: str
    dtype: torch.dtype
    beside: tuple[bool, bool, bool]  # which of bias, loc and scale are given
    seed: str  # its type
    aligned: bool
    rows: int
    columns: int
    columns_first: bool
    octets: int  # of each thread
    repeated: bool
    grouped: bool
    in_rows: bool
    loc_is_number: bool
    scale_is_number: bool
    draws_by_estimate: bool


def specialize_forward(key: ForwardKey) -> Specialization:
    operand = pointer(key.dtype, key.aligned)
    numbers = False, key.loc_is_number, key.scale_is_number
    beside = [
        (pointer(key.dtype, aligned=False) if is_number else operand) if there else None
        for there, is_number in zip(key.beside, numbers, strict=True)
    ]
    arguments = (
        operand,
        "*u8",  # of unknown alignment, else threads exchange bytes to store more at once
        operand,
        *beside,
        key.seed,
        "i64",
        "i64",
        "i64:8",
        *["i64"] * 4,
    )
    return Specialization(
        *("soi.kernels.soi_forward", arguments, key[5:], key.gate, ("in_tail", "draw"), "random"),
        threads=tuning.DRAW_THREADS,
        most_registers=draw_registers(key),
    )


def draw_registers(key: ForwardKey) -> int | None:
    if not key.draws_by_estimate:
        return None
    if not any(key.beside):
        return tuning.DRAW_REGISTERS
    if key.beside[1] and key.dtype == torch.float16:
        return tuning.DRAW_REGISTERS_FP16_SCALED
    return tuning.DRAW_REGISTERS_BESIDE


def specialize_backward(key: tuple[torch.dtype, bool, int]) -> Specialization:
    operand = pointer(*key[:2])
    return Specialization("soi.kernels.soi_backward", (operand, operand, "*u8", "i64"), key[2:])


def soi_forward(
    y: Tensor,
    mask: Tensor,
    x: Tensor,
    bias: Tensor | None,
    seed: Tensor,
    gate: str,
    offset: int = 0,
    row_length: int = 0,
    row_stride: int = 0,
) -> None:
    draw("soi_forward", y, mask, x, (bias, None, None), seed, gate, offset, row_length, row_stride)


def soi_cdf_forward(
    y: Tensor,
    mask: Tensor,
    x: Tensor,
    loc: Tensor,
    scale: Tensor,
    seed: Tensor,
    gate: str,
    offset: int = 0,
    row_length: int = 0,
    row_stride: int = 0,
) -> None:
    beside = None, loc, scale
    draw("soi_cdf_forward", y, mask, x, beside, seed, gate, offset, row_length, row_stride)


def draw(
    op: str,
    y: Tensor,
    mask: Tensor,
    x: Tensor,
    beside: tuple[Tensor | None, Tensor | None, Tensor | None],  # bias, loc and scale
    seed: Tensor,
    gate: str,
    offset: int,
    row_length: int,
    row_stride: int,
) -> None:
    elements = x.numel()
    if elements == 0:
        return
    dense_x = x.contiguous()
    dense_y = y if y.is_contiguous() else torch.empty_like(x, memory_format=contiguous)
    beside = [t if t is None else t.contiguous() for t in beside]
    vectors = [t for t in beside if t is not None and t.dim() == 1]
    columns = vectors[0].numel() if vectors else elements
    repeated = columns % 8 != 0 and columns != elements
    row_columns = elements if repeated else columns
    rows = elements // row_columns
    given = tuple(t is not None for t in beside)
    tiles = draw_tiles(rows, row_columns, x.itemsize, not any(given), len(vectors))
    own_seed = argument(seed, x)
    aligned = are_aligned((dense_y, dense_x, *vectors), ())
    grouped = row_length == 0 and offset % 8 == 0
    is_shared = not vectors or (not repeated and tiles.columns <= 8 * tuning.DRAW_THREADS)
    key = ForwardKey(
        gate,
        x.dtype,
        given,
        own_seed.type,
        aligned,
        *tiles[:3],
        tiles.rows * tiles.columns // (8 * tuning.DRAW_THREADS),
        repeated,
        grouped,
        row_length != 0,
        *(t is not None and t.dim() == 0 for t in beside[1:]),
        aligned and grouped and is_shared and x.itemsize == 2,
    )
    row_step = row_columns if rows > 1 else 0
    tensors = (dense_y, mask, dense_x, *beside, *own_seed.tensors)
    integers = (rows, row_columns, row_step, columns, offset, row_length, row_stride)
    numbers = (*own_seed.numbers, *integers)
    launch(op, key, specialize_forward, tiles.grid, tensors, numbers)
    if dense_y is not y:
        y.copy_(dense_y)


def soi_backward(dx: Tensor, dy: Tensor, mask: Tensor) -> None:
    elements = dy.numel()
    if elements == 0:
        return
    dense_dy, mask = dy.contiguous(), mask.contiguous()
    dense_dx = dx if dx.is_contiguous() else torch.empty_like(dy, memory_format=contiguous)
    tiles = octet_tiles(1, elements, dy.itemsize, 1)
    key = dy.dtype, are_aligned((dense_dx, dense_dy), ()), tiles.columns // 8
    tensors = (dense_dx, dense_dy, mask)
    launch("soi_backward", key, specialize_backward, tiles.grid, tensors, (elements,))
    if dense_dx is not dx:
        dx.copy_(dense_dx)


def specialize_sums(key: bias_gradient.Key) -> Specialization:
    operand = pointer(key.dtype, key.aligned)
    arguments = (
        operand,
        operand,
        "*u8",
        pointer(bias_gradient.sum_type(key.dtype), aligned=True),
        "i64",
        "i64:8" if key.whole else "i64",
        "i64",
        *[integer(key.dtype, key.aligned)] * 2,
        *(1 if consecutive else "i64" for consecutive in key.consecutive),
    )
    compiled_in = key.columns, key.columns_first, key.whole
    return Specialization("soi.column_sums.sum_masked_columns", arguments, compiled_in)


def soi_backward_bias(dx: Tensor, dbias: Tensor, dy: Tensor, mask: Tensor) -> None:
    op = "soi_backward_bias"
    bias_gradient.sum_columns(
        op, specialize_sums, None, (dx, dbias), (dy,), (mask.contiguous(),), unit=8
    )
