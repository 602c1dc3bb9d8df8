"""The core operators by Triton kernels: what csrc/ops/cuda.cpp is for those of CUDA."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gelu_kernels import _C
from gelu_kernels.triton_kernels.configurations import (
    PARTIAL_COLUMNS,
    VECTOR_BYTES,
    column_sum_tiles,
    map_tiles,
)
from gelu_kernels.triton_kernels.launch import Specialization, Type, launch

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
    """All addresses, and the sizes of so many elements, are those of vectors."""
    bits = 0
    for n in counts:
        bits |= n
    bits *= tensors[0].itemsize
    for t in tensors:
        if t is not None:
            bits |= t.data_ptr()
    return bits % VECTOR_BYTES == 0


def strides(operands: Sequence[Tensor | None], columns: int) -> tuple[tuple[int, ...], ...]:
    """Of the rows and of the columns, if the last dimension is that of the columns."""
    pairs = [(0, 1) if t is None else t.view(-1, columns).stride() for t in operands]
    return tuple(zip(*pairs, strict=True))


class Matrices(NamedTuple):
    """What operands are, the elements of each in the same order."""

    rows: int
    columns: int
    row_strides: tuple[int, ...]
    column_strides: tuple[int, ...]
    alike: bool  # one row: they all have the same strides, and no gaps


def matrices(operands: Sequence[Tensor | None], x: Tensor, keep_columns: bool) -> Matrices:
    """Of operands of x's shape, the first without gaps, in an order of the dimensions that suits x;
    with ``keep_columns``, the last is that of the columns. RuntimeError if that takes copies."""
    if not keep_columns:
        if len({t.stride() for t in operands if t is not None}) == 1:
            n = len(operands)
            return Matrices(1, x.numel(), (0,) * n, (1,) * n, alike=True)
        dims = sorted(range(x.dim()), key=x.stride, reverse=True)
        operands = [t if t is None else t.permute(dims) for t in operands]
        x = x.permute(dims)
    columns = x.size(-1)
    return Matrices(x.numel() // columns, columns, *strides(operands, columns), alike=False)


class MapKey(NamedTuple):
    order: str
    gate: str
    dtype: torch.dtype
    operands: tuple[bool, ...]  # of out, ddx, dy, x and bias, those that there are
    aligned: bool
    aligned_columns: bool
    consecutive: tuple[bool, ...]  # operands whose columns are
    rows: int
    columns: int
    columns_first: bool


def _specialize_map(key: MapKey) -> Specialization:
    operand = pointer(key.dtype, key.aligned)
    precision = TYPES[key.dtype]
    _, _, multiplied, _, biased = key.operands
    is_value = key.order == "value" and not multiplied and not biased
    if is_value and precision == "bf16":
        precision = "fast_bf16"  # see csrc/gates/arithmetic.h
    if key.order == "second_derivative" and key.dtype.itemsize == 2:
        precision = "fp32"
    arguments: tuple[Type, ...] = (
        *(operand if given else None for given in key.operands),
        "i64",
        integer(key.dtype, key.aligned_columns),
        *[integer(key.dtype, key.aligned)] * 4,
        *(1 if consecutive else "i64" for consecutive in key.consecutive),
    )
    return Specialization(
        "map.map_rows",
        arguments,
        (key.rows, key.columns, key.columns_first),
        key.gate,
        (key.order,),
        precision,
        is_value,
    )


def map_rows(
    op: str,
    order: str,
    gate: str,
    out: Tensor,
    ddx: Tensor | None,
    dy: Tensor | None,
    x: Tensor,
    bias: Tensor | None,
) -> None:
    if x.numel() == 0:
        return
    operands = (out, ddx, dy, x)
    bias = bias if bias is None else bias.contiguous()
    try:
        m = matrices(operands, x, keep_columns=bias is not None)
    except RuntimeError:
        packed = torch.empty_like(x, memory_format=torch.contiguous_format)
        inputs = [t if t is None else t.contiguous() for t in (ddx, dy, x)]
        map_rows(op, order, gate, packed, *inputs, bias)
        out.copy_(packed)
        return
    tensors = (*operands, bias)
    given = tuple([t is not None for t in tensors])
    tiles = map_tiles(m.rows, m.columns, x.itemsize, inputs=sum(given[1:4]))
    key = MapKey(
        order,
        gate,
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
    launch(op, key, _specialize_map, tiles.grid, tensors, integers)


def gate_forward(x: Tensor, bias: Tensor | None, gate: str) -> Tensor:
    _C.check_gate("gate_forward", x, bias, gate)
    y = torch.empty_like(x)
    map_rows("gate_forward", "value", gate, y, None, None, x, bias)
    return y


def gate_backward(dy: Tensor, x: Tensor, bias: Tensor | None, gate: str) -> Tensor:
    _C.check_gate("gate_backward", x, bias, gate, dy=dy)
    dx = torch.empty_like(x)
    map_rows("gate_backward", "derivative", gate, dx, None, dy, x, bias)
    return dx


def gate_double_backward(
    ddx: Tensor, dy: Tensor, x: Tensor, bias: Tensor | None, gate: str
) -> Tensor:
    _C.check_gate("gate_double_backward", x, bias, gate, dy=dy, ddx=ddx)
    dx = torch.empty_like(x)
    map_rows("gate_double_backward", "second_derivative", gate, dx, ddx, dy, x, bias)
    return dx


class SumKey(NamedTuple):
    gate: str
    dtype: torch.dtype
    aligned: bool
    aligned_columns: bool
    consecutive: tuple[bool, ...]  # of dx, dy and x, those whose columns are
    columns: int
    columns_first: bool


def sum_type(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _specialize_sum_columns(key: SumKey) -> Specialization:
    arguments: tuple[Type, ...] = (
        *[pointer(key.dtype, key.aligned)] * 4,
        pointer(sum_type(key.dtype), aligned=True),
        "i64",
        integer(key.dtype, key.aligned_columns),
        "i64",
        *[integer(key.dtype, key.aligned)] * 3,
        *(1 if consecutive else "i64" for consecutive in key.consecutive),
    )
    precision = TYPES[key.dtype]
    compiled_in = key.columns, key.columns_first
    return Specialization(
        "column_sums.sum_columns", arguments, compiled_in, key.gate, ("derivative",), precision
    )


def _specialize_add_partial_sums(dtype: torch.dtype) -> Specialization:
    pointers = pointer(sum_type(dtype), aligned=True), pointer(dtype, aligned=True)
    arguments = (*pointers, "i64", "i64")
    return Specialization("column_sums.add_partial_sums", arguments, (PARTIAL_COLUMNS,))


def add_partial_sums(op: str, partial: Tensor, dbias: Tensor) -> None:
    grid = (-(-dbias.numel() // PARTIAL_COLUMNS), 1, 1)
    tensors = (partial, dbias)
    launch(op, dbias.dtype, _specialize_add_partial_sums, grid, tensors, tuple(partial.shape))


def gate_backward_bias(dy: Tensor, x: Tensor, bias: Tensor, gate: str) -> tuple[Tensor, Tensor]:
    op = "gate_backward_bias"
    _C.check_gate(op, x, bias, gate, dy=dy)
    dx = torch.empty_like(x)
    dbias = torch.empty_like(bias, memory_format=torch.contiguous_format)
    if x.numel() == 0:
        return dx, dbias.zero_()
    columns = bias.numel()
    rows = x.numel() // columns
    try:
        row_strides, column_strides = strides((dx, dy, x), columns)
    except RuntimeError:  # they are no matrices without a copy
        packed_dx, dbias = gate_backward_bias(dy.contiguous(), x.contiguous(), bias, gate)
        return dx.copy_(packed_dx), dbias
    tiles = column_sum_tiles(rows, columns, x.itemsize)
    partial = torch.empty((tiles.blocks, columns), dtype=sum_type(x.dtype), device=x.device)
    bias = bias.contiguous()
    key = SumKey(
        gate,
        x.dtype,
        are_aligned((dx, dy, x, bias), row_strides),
        columns * x.itemsize % VECTOR_BYTES == 0,
        tuple([stride == 1 for stride in column_strides]),
        tiles.columns,
        tiles.columns_first,
    )
    tensors = (dx, dy, x, bias, partial)
    integers = (rows, columns, tiles.block_rows, *row_strides, *column_strides)
    launch(op, key, _specialize_sum_columns, tiles.grid, tensors, integers)
    add_partial_sums(op, partial, dbias)
    return dx, dbias
