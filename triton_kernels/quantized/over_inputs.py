"""Starts the kernels whose results are quantised, for inputs of any layout."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gelu_kernels.triton_kernels.bias_gradient import add_partial_sums
from gelu_kernels.triton_kernels.launch import Grid, Specialization, Type, launch
from gelu_kernels.triton_kernels.matrices import TYPES, are_aligned, integer, pointer
from gelu_kernels.triton_kernels.tuning import (
    VECTOR_BYTES,
    band_tiles,
    map_tiles,
    whole_row_tiles,
)

Result = tuple[Tensor, Tensor, Tensor, Tensor]  # data, scales, column_data and column_scales

# A number or a tensor that a kernel takes, and its type.
Typed = tuple[int, str] | tuple[Tensor | None, str]

# Of everything but the rows: scaled_mm takes no other sizes.
SIZE = "i64:16"

LEAST_SCALE = 2.0**-126  # as in csrc/gates/float8.h


class Inputs(NamedTuple):
    """The inputs of a pass."""

    gate: str
    x: Tensor
    up: Tensor | None = None
    dy: Tensor | None = None
    bias: Tensor | None = None

    @property
    def matrices(self) -> int:
        return sum(t is not None for t in self[1:4])


def in_vectors(inputs: Inputs) -> Inputs:
    """The inputs as matrices whose rows consist of whole vectors, or copies that do."""
    columns = inputs.x.size(-1)

    def matrix(t: Tensor | None) -> Tensor | None:
        if t is None:
            return None
        m = t.reshape(-1, columns)
        has_vectors = m.stride(1) == 1 and are_aligned((m,), (m.stride(0),))
        return m if has_vectors else m.clone(memory_format=torch.contiguous_format)

    return Inputs(inputs.gate, *map(matrix, inputs[1:]))


def specialize(key: Specialization) -> Specialization:
    return key


def start(
    op: str,
    kernel: str,
    grid: Grid,
    results: Sequence[Typed],
    inputs: Inputs,
    numbers: Sequence[Typed],
    compiled_in: tuple[int | bool, ...],
) -> None:
    gate, *operands = inputs
    dtype = inputs.x.dtype
    strides = [0 if t is None else t.stride(0) for t in operands[:3]]
    is_value = all(t is None for t in operands[1:])  # the gate of a stored x
    precision = TYPES[dtype]
    arguments: tuple[Type, ...] = (
        *(None if t is None else type for t, type in results),
        *(None if t is None else pointer(dtype, aligned=True) for t in operands),
        *(type for _, type in numbers),
        *[integer(dtype, aligned=True)] * len(strides),
    )
    key = Specialization(
        f"quantized.{kernel}",
        arguments,
        compiled_in,
        gate,
        ("value", "derivative"),
        "fast_bf16" if is_value and precision == "bf16" else precision,
        is_value,
    )
    tensors = (*(t for t, _ in results), *operands)
    integers = (*(n for n, _ in numbers), *strides)
    launch(op, key, specialize, grid, tensors, integers)


def data_type(inputs: Inputs) -> str:
    """A thread stores as many elements as it loads: with a larger known alignment, threads would
    exchange elements."""
    return f"*u8:{VECTOR_BYTES // inputs.x.itemsize}"


def is_e5m2(data: Tensor) -> bool:
    return data.dtype == torch.float8_e5m2


def with_floats(
    op: str, data: Tensor, scales: Tensor, inputs: Inputs, scale: Tensor | None, scaling: str
) -> None:
    """TensorWise, RowWise and BlockWise1x128."""
    if scaling == "TensorWise":
        scales.zero_()
    if data.numel() == 0:
        if scaling == "RowWise":
            scales.fill_(LEAST_SCALE)
        return
    inputs = in_vectors(inputs)
    (rows, columns), itemsize = inputs.x.shape, inputs.x.itemsize
    numbers = (rows, "i64"), (columns, SIZE)
    first = data, data_type(inputs)
    if scaling == "RowWise":
        tiles = whole_row_tiles(rows, columns, itemsize, inputs.matrices)
        results = first, (scales, "*fp32:16")
        layout = tiles.rows, tiles.columns, tiles.columns >= columns
        kernel = "floats.quantize_rows"
    else:
        tiles = map_tiles(rows, columns, itemsize, inputs.matrices)
        own = scales, "*fp32:16" if scale is None else "*i32:16"
        results = first, own, (scale, "*fp32")
        layout = tiles[:3]
        kernel = "floats.quantize_tiles"
    start(op, kernel, tiles.grid, results, inputs, numbers, (is_e5m2(data), *layout))


def in_blocks(
    op: str,
    results: Sequence[Result],
    inputs: Inputs,
    mode: str,
    swizzle: str,
    *,
    dbias: Tensor | None = None,
) -> None:
    """BlockWise1x32. Two results may be the halves of one."""
    is_swizzled = swizzle == "SWIZZLE_32_4_4"
    if is_swizzled:
        clear_padding(results)
    if inputs.x.numel() == 0:
        if dbias is not None:
            dbias.zero_()
        return
    inputs = in_vectors(inputs)
    (rows, columns), itemsize = inputs.x.shape, inputs.x.itemsize
    first = results[0]
    has_columns = first[2].numel() > 0
    partial = None
    if has_columns or dbias is not None:
        tiles = band_tiles(rows, columns, itemsize, dbias is not None)
        tile_rows, block_rows = 32, tiles.block_rows
        if dbias is not None:
            shape = tiles.blocks, columns
            partial = torch.empty(shape, dtype=torch.float32, device=dbias.device)
    else:
        # Two vectors, also of three inputs: with one, half of the instructions are overhead.
        tiles = map_tiles(rows, columns, itemsize, min(inputs.matrices, 2))
        tile_rows = block_rows = tiles.rows
    are_halves = len(results) == 2 and results[1] is first
    width = 2 * columns if are_halves else columns
    types = data_type(inputs), "*u8", "*u8:16", "*u8"
    pointers = [
        (t if t.numel() else None, type)
        for result in results
        for t, type in zip(result, types, strict=True)
    ]
    not_there = [(None, "")] * (8 - len(pointers))
    numbers = (
        (rows, SIZE if has_columns else "i64"),
        (columns, SIZE),
        (block_rows, SIZE if tile_rows == 32 else "i64"),
        (width, SIZE),
        (width - columns, SIZE),
        (int(mode == "rceil"), "i32"),
    )
    compiled_in = is_e5m2(first[0]), is_swizzled, tile_rows, tiles.columns, tiles.columns_first
    start(
        op,
        "blocks.quantize_bands",
        tiles.grid,
        (*pointers, *not_there, (partial, "*fp32:16")),
        inputs,
        numbers,
        compiled_in,
    )
    if partial is not None:
        add_partial_sums(op, partial, dbias)


def clear_padding(results: Sequence[Result]) -> None:
    """Zeroes scales that no kernel writes, where there are more scales than blocks."""
    for data, scales, column_data, column_scales in results:
        for numbers, own in ((data, scales), (column_data, column_scales)):
            if own.numel() * 32 > numbers.numel():
                own.view(torch.uint8).zero_()
