"""Results with a scale for each row (RowWise), along the rows alone."""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.quantized.float8 import magnitude_bits, scale_of, to_float8
from gelu_kernels.triton_kernels.quantized.results import results_at
from gelu_kernels.triton_kernels.tile import inside, tile


@triton.jit
def store_numbers(y, data, width, row, column, factor, mask, R: tl.constexpr, C: tl.constexpr):
    numbers = to_float8(y * factor, R.is_e5m2, C)
    tl.store(tile(data, width, 1, row, column, R.rows, R.columns), numbers, mask)


@triton.jit
def tile_at(
    inputs, row, column, rows, columns, VALUE: tl.constexpr, DERIVATIVE: tl.constexpr,
    C: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """The results, and which of them are in the matrix."""
    y, other = results_at(inputs, row, column, rows, columns, VALUE, DERIVATIVE, C, R)
    return y, other, inside(row, column, rows, columns, R.rows, R.columns)


@triton.jit
def magnitudes(y, mask):
    return tl.where(mask, magnitude_bits(y), 0)


@triton.jit
def quantize_rows(
    data,
    scales,
    second_data,
    second_scales,
    x,
    up,
    dy,
    bias,
    weight,
    limit,
    up_offset,
    rows,
    columns,
    width,
    shift,
    rounds_up,
    x_row,
    up_row,
    dy_row,
    VALUE: tl.constexpr,
    DERIVATIVE: tl.constexpr,
    C: tl.constexpr,
    R: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """Each program quantises whole rows of one or two results. If a tile is as wide as a row
    (WHOLE), the numbers stay in registers; otherwise a second loop recomputes them. Results have
    `width` columns, and the second starts at column `shift`. Without `second_scales`, both results
    share a scale."""
    row = tl.program_id(0).to(tl.int64) * R.rows
    inputs = (x, up, dy, bias, weight, limit, up_offset, x_row, up_row, dy_row)
    HAS_TWO: tl.constexpr = up is not None and dy is not None
    if WHOLE:
        y, other, mask = tile_at(inputs, row, 0, rows, columns, VALUE, DERIVATIVE, C, R)
        most = magnitudes(y, mask)
        second_most = magnitudes(other, mask)
    else:
        ROWS: tl.constexpr = R.rows
        COLUMNS: tl.constexpr = R.columns
        most = tl.zeros((ROWS, COLUMNS), tl.int32)
        second_most = tl.zeros((ROWS, COLUMNS), tl.int32)
        for column in range(0, columns, R.columns):
            y, other, mask = tile_at(inputs, row, column, rows, columns, VALUE, DERIVATIVE, C, R)
            most = tl.maximum(most, magnitudes(y, mask))
            second_most = tl.maximum(second_most, magnitudes(other, mask))
    if HAS_TWO and second_scales is None:
        most = tl.maximum(most, second_most)
    places = row + tl.arange(0, R.rows)[:, None]
    scale, factor = scale_of(tl.max(most, 1, keep_dims=True), rounds_up, R)
    tl.store(scales + places, scale, places < rows)
    second_factor = factor
    if second_scales is not None:
        scale, second_factor = scale_of(tl.max(second_most, 1, keep_dims=True), rounds_up, R)
        tl.store(second_scales + places, scale, places < rows)
    if WHOLE:
        store_numbers(y, data, width, row, 0, factor, mask, R, C)
        if HAS_TWO:
            store_numbers(other, second_data, width, row, shift, second_factor, mask, R, C)
    else:
        for column in range(0, columns, R.columns):
            y, other, mask = tile_at(inputs, row, column, rows, columns, VALUE, DERIVATIVE, C, R)
            store_numbers(y, data, width, row, column, factor, mask, R, C)
            if HAS_TWO:
                store_numbers(
                    other, second_data, width, row, shift + column, second_factor, mask, R, C
                )
