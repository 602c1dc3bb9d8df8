"""The largest magnitudes of rows and columns, for RowWise scales, as the bits of floats. The memory
starts at 0; column maxima have one row for each group."""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.quantized.float8 import magnitude_bits
from gelu_kernels.triton_kernels.quantized.groups import band_of
from gelu_kernels.triton_kernels.quantized.results import results_at
from gelu_kernels.triton_kernels.tile import inside


@triton.jit
def amax_of_rows(amax, band, R: tl.constexpr):
    """Pointers to the largest magnitudes of a tile's rows."""
    return amax + band[0] + tl.arange(0, R.rows)[:, None]


@triton.jit
def amax_of_columns(amax, band, column, width, R: tl.constexpr):
    return amax + band[3].to(tl.int64) * width + column + tl.arange(0, R.columns)[:, None]


@triton.jit
def raise_rows(amax, magnitudes, band, R: tl.constexpr):
    there = amax_of_rows(amax, band, R)
    in_row = band[0] + tl.arange(0, R.rows)[:, None] < band[2]
    tl.atomic_max(there, tl.max(magnitudes, 1, keep_dims=True), in_row, sem="relaxed")


@triton.jit
def raise_columns(amax, magnitudes, band, column, columns, width, shift, R: tl.constexpr):
    there = amax_of_columns(amax, band, column + shift, width, R)
    in_column = column + tl.arange(0, R.columns)[:, None] < columns
    most = tl.trans(tl.max(magnitudes, 0, keep_dims=True))
    tl.atomic_max(there, most, in_column, sem="relaxed")


@triton.jit
def find_amax(
    row_amax,
    column_amax,
    second_row_amax,
    second_column_amax,
    ends,
    x,
    up,
    dy,
    bias,
    weight,
    limit,
    up_offset,
    rows,
    columns,
    block_rows,
    width,
    shift,
    groups,
    x_row,
    up_row,
    dy_row,
    VALUE: tl.constexpr,
    DERIVATIVE: tl.constexpr,
    C: tl.constexpr,
    R: tl.constexpr,
):
    """The first pass; ``bands.quantize_bands`` is the second. Integer maxima do not depend on their
    order."""
    start, begin, end, group, blocks, tiles = band_of(ends, groups, rows, block_rows, R)
    column = tl.program_id(0 if R.columns_first else 1).to(tl.int64) * R.columns
    inputs = (x, up, dy, bias, weight, limit, up_offset, x_row, up_row, dy_row)
    HAS_TWO: tl.constexpr = up is not None and dy is not None
    ROWS: tl.constexpr = R.rows
    COLUMNS: tl.constexpr = R.columns
    most = tl.zeros((ROWS, COLUMNS), tl.int32)
    second_most = tl.zeros((ROWS, COLUMNS), tl.int32)
    for row in range(start, tl.minimum(start + block_rows, end), R.rows):
        band = (row, begin, end, group, blocks, tiles)
        y, other = results_at(inputs, row, column, end, columns, VALUE, DERIVATIVE, C, R)
        mask = inside(row, column, end, columns, R.rows, R.columns)
        magnitudes = tl.where(mask, magnitude_bits(y), 0)
        most = tl.maximum(most, magnitudes)
        if row_amax is not None:
            raise_rows(row_amax, magnitudes, band, R)
        if HAS_TWO:
            magnitudes = tl.where(mask, magnitude_bits(other), 0)
            second_most = tl.maximum(second_most, magnitudes)
            if row_amax is not None:
                raise_rows(second_row_amax, magnitudes, band, R)
    if start < end:  # otherwise there may be no group
        band = (start, begin, end, group, blocks, tiles)
        raise_columns(column_amax, most, band, column, columns, width, 0, R)
        if HAS_TWO:
            raise_columns(second_column_amax, second_most, band, column, columns, width, shift, R)
