"""Results whose scales are floats: one that the caller gives (TensorWise), or one for each row
(RowWise) or for each 128 numbers of a row (BlockWise1x128)."""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.arithmetic import from_bits
from gelu_kernels.triton_kernels.quantized.float8 import (
    float_scale,
    inverse_of_given,
    magnitude_bits,
    to_float8,
)
from gelu_kernels.triton_kernels.quantized.results import results_at
from gelu_kernels.triton_kernels.tile import inside, origin, tile

BLOCK = tl.constexpr(128)


@triton.jit
def quantize_tiles(
    data,
    scales,
    scale,
    x,
    up,
    dy,
    bias,
    rows,
    columns,
    x_row,
    up_row,
    dy_row,
    VALUE: tl.constexpr,
    DERIVATIVE: tl.constexpr,
    C: tl.constexpr,
    IS_E5M2: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    COLUMNS_FIRST: tl.constexpr,
):
    """With a given scale, `scales` receives the bits of the largest magnitude; else each block of
    128 has a scale, and the scales of a column of blocks are contiguous."""
    row, column = origin(ROWS, COLUMNS, COLUMNS_FIRST)
    inputs = (x, up, dy, bias, x_row, up_row, dy_row)
    y, _ = results_at(inputs, row, column, rows, columns, VALUE, DERIVATIVE, C, ROWS, COLUMNS)
    mask = inside(row, column, rows, columns, ROWS, COLUMNS)
    if scale is not None:
        numbers = to_float8(y * inverse_of_given(tl.load(scale)), IS_E5M2, C)
        amax = tl.max(tl.where(mask, magnitude_bits(y), 0))
        tl.atomic_max(scales, amax, sem="relaxed")
    else:
        BLOCKS: tl.constexpr = COLUMNS // BLOCK
        blocks = tl.reshape(y, (ROWS, BLOCKS, BLOCK))
        own, inverse = float_scale(from_bits(tl.max(magnitude_bits(blocks), 2)), IS_E5M2)
        numbers = to_float8(blocks * inverse[:, :, None], IS_E5M2, C)
        numbers = tl.reshape(numbers, (ROWS, COLUMNS))
        places = row + tl.arange(0, ROWS)[:, None]
        block = column // BLOCK + tl.arange(0, BLOCKS)[None, :]
        is_inside = (places < rows) & (block * BLOCK < columns)
        tl.store(scales + block * rows + places, own, is_inside)
    tl.store(tile(data, columns, 1, row, column, ROWS, COLUMNS), numbers, mask)


@triton.jit
def quantize_rows(
    data,
    scales,
    x,
    up,
    dy,
    bias,
    rows,
    columns,
    x_row,
    up_row,
    dy_row,
    VALUE: tl.constexpr,
    DERIVATIVE: tl.constexpr,
    C: tl.constexpr,
    IS_E5M2: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """A program has whole rows. A tile may be as wide as a row (WHOLE); else a second loop computes
    the numbers again."""
    row = tl.program_id(0).to(tl.int64) * ROWS
    inputs = (x, up, dy, bias, x_row, up_row, dy_row)
    if WHOLE:
        y, _ = results_at(inputs, row, 0, rows, columns, VALUE, DERIVATIVE, C, ROWS, COLUMNS)
        mask = inside(row, 0, rows, columns, ROWS, COLUMNS)
        magnitudes = tl.where(mask, magnitude_bits(y), 0)
    else:
        magnitudes = tl.zeros((ROWS, COLUMNS), tl.int32)
        for column in range(0, columns, COLUMNS):
            y, _ = results_at(
                inputs, row, column, rows, columns, VALUE, DERIVATIVE, C, ROWS, COLUMNS
            )
            mask = inside(row, column, rows, columns, ROWS, COLUMNS)
            magnitudes = tl.maximum(magnitudes, tl.where(mask, magnitude_bits(y), 0))
    scale, inverse = float_scale(from_bits(tl.max(magnitudes, 1, keep_dims=True)), IS_E5M2)
    places = row + tl.arange(0, ROWS)[:, None]
    tl.store(scales + places, scale, places < rows)
    if WHOLE:
        numbers = to_float8(y * inverse, IS_E5M2, C)
        tl.store(tile(data, columns, 1, row, 0, ROWS, COLUMNS), numbers, mask)
    else:
        for column in range(0, columns, COLUMNS):
            y, _ = results_at(
                inputs, row, column, rows, columns, VALUE, DERIVATIVE, C, ROWS, COLUMNS
            )
            numbers = to_float8(y * inverse, IS_E5M2, C)
            mask = inside(row, column, rows, columns, ROWS, COLUMNS)
            tl.store(tile(data, columns, 1, row, column, ROWS, COLUMNS), numbers, mask)
