"""The core operators of the SOI map by Triton kernels: what csrc/ops/soi.cpp is for the CPU's."""

from typing import NamedTuple

import torch
from torch import Tensor

from gelu_kernels import _C
from gelu_kernels.triton_kernels import configurations, operators
from gelu_kernels.triton_kernels.configurations import column_sum_tiles, soi_tiles
from gelu_kernels.triton_kernels.launch import Specialization, launch

contiguous = torch.contiguous_format


class ForwardKey(NamedTuple):
    gate: str
    dtype: torch.dtype
    biased: bool
    aligned: bool
    rows: int
    columns: int
    columns_first: bool
    octets: int  # of a thread
    repeated: bool
    grouped: bool
    in_rows: bool


def _specialize_forward(key: ForwardKey) -> Specialization:
    pointer = operators.pointer(key.dtype, key.aligned)
    arguments = (
        pointer,
        "*u8",  # if it were promised to be aligned, threads would exchange bytes to store more
        pointer,
        pointer if key.biased else None,
        "*i64",
        "i64",
        "i64",
        "i64:8",
        *["i64"] * 4,
    )
    return Specialization("soi.soi_forward", arguments, key[4:], key.gate, ("in_tail",), "random")


def _specialize_backward(key: tuple[torch.dtype, bool, int]) -> Specialization:
    pointer = operators.pointer(*key[:2])
    return Specialization("soi.soi_backward", (pointer, pointer, "*u8", "i64"), key[2:])


def soi_forward(
    x: Tensor,
    bias: Tensor | None,
    seed: Tensor,
    gate: str,
    offset: int = 0,
    row_length: int = 0,
    row_stride: int = 0,
) -> tuple[Tensor, Tensor]:
    _C.check_soi_forward(x, bias, seed, gate, offset, row_length, row_stride)
    elements = x.numel()
    mask = torch.empty(-(-elements // 8), dtype=torch.uint8, device=x.device)
    y = torch.empty_like(x)
    if elements == 0:
        return y, mask
    packed_x = x.contiguous()
    packed_y = y if y.is_contiguous() else torch.empty_like(x, memory_format=contiguous)
    bias = bias if bias is None else bias.contiguous()
    tensors = (packed_y, mask, packed_x, bias, seed)
    columns = elements if bias is None else bias.numel()
    repeated = columns % 8 != 0 and columns != elements
    row_columns = elements if repeated else columns
    rows = elements // row_columns
    tiles = soi_tiles(rows, row_columns, x.itemsize)
    key = ForwardKey(
        gate,
        x.dtype,
        bias is not None,
        operators.are_aligned((packed_y, packed_x, bias), ()),
        *tiles[:3],
        tiles.rows * tiles.columns // (8 * configurations.THREADS),
        repeated,
        row_length == 0 and offset % 4 == 0,
        row_length != 0,
    )
    row_step = row_columns if rows > 1 else 0
    integers = (rows, row_columns, row_step, columns, offset, row_length, row_stride)
    launch("soi_forward", key, _specialize_forward, tiles.grid, tensors, integers)
    return (y if packed_y is y else y.copy_(packed_y)), mask


def soi_backward(dy: Tensor, mask: Tensor) -> Tensor:
    _C.check_soi_backward("soi_backward", dy, mask, False)
    dx = torch.empty_like(dy)
    elements = dy.numel()
    if elements == 0:
        return dx
    packed_dy, mask = dy.contiguous(), mask.contiguous()
    packed_dx = dx if dx.is_contiguous() else torch.empty_like(dy, memory_format=contiguous)
    tiles = soi_tiles(1, elements, dy.itemsize)
    key = dy.dtype, operators.are_aligned((packed_dx, packed_dy), ()), tiles.columns // 8
    tensors = (packed_dx, packed_dy, mask)
    launch("soi_backward", key, _specialize_backward, tiles.grid, tensors, (elements,))
    return dx if packed_dx is dx else dx.copy_(packed_dx)


class SumKey(NamedTuple):
    dtype: torch.dtype
    aligned: bool
    consecutive: tuple[bool, ...]  # of dx and dy, those whose columns are
    columns: int
    columns_first: bool
    octets: bool


def _specialize_sum(key: SumKey) -> Specialization:
    pointer = operators.pointer(key.dtype, key.aligned)
    arguments = (
        pointer,
        pointer,
        "*u8",
        operators.pointer(operators.sum_type(key.dtype), aligned=True),
        "i64",
        "i64:8" if key.octets else "i64",
        "i64",
        *[operators.integer(key.dtype, key.aligned)] * 2,
        *(1 if consecutive else "i64" for consecutive in key.consecutive),
    )
    return Specialization("masked_column_sums.sum_masked_columns", arguments, key[3:])


def soi_backward_bias(dy: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    op = "soi_backward_bias"
    _C.check_soi_backward(op, dy, mask, True)
    dx = torch.empty_like(dy)
    columns = dy.size(-1)
    dbias = torch.empty(columns, dtype=dy.dtype, device=dy.device)
    if dy.numel() == 0:
        return dx, dbias.zero_()
    rows = dy.numel() // columns
    try:
        row_strides, column_strides = operators.strides((dx, dy), columns)
    except RuntimeError:  # they are no matrices without a copy
        packed_dx, dbias = soi_backward_bias(dy.contiguous(), mask)
        return dx.copy_(packed_dx), dbias
    tiles = column_sum_tiles(rows, columns, dy.itemsize)
    sums = torch.empty(
        (tiles.blocks, columns), dtype=operators.sum_type(dy.dtype), device=dy.device
    )
    key = SumKey(
        dy.dtype,
        operators.are_aligned((dx, dy), row_strides),
        tuple([stride == 1 for stride in column_strides]),
        tiles.columns,
        tiles.columns_first,
        columns % 8 == 0,
    )
    tensors = (dx, dy, mask.contiguous(), sums)
    integers = (rows, columns, tiles.block_rows, *row_strides, *column_strides)
    launch(op, key, _specialize_sum, tiles.grid, tensors, integers)
    operators.add_partial_sums(op, sums, dbias)
    return dx, dbias
