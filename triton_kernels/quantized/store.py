"""Stores a tile of results in eight bits, and the scales that belong to it."""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.quantized.amax import amax_of_columns, amax_of_rows
from gelu_kernels.triton_kernels.quantized.float8 import magnitude_bits, scale_of, to_float8
from gelu_kernels.triton_kernels.quantized.scales import place_along_columns, place_along_rows
from gelu_kernels.triton_kernels.tile import inside, tile


@triton.jit
def quantize(
    y, mask, data, length, row, column, scales, place, is_own, amax, rounds_up, R: tl.constexpr,
    C: tl.constexpr,
):  # fmt: skip
    """Stores a tile whose scales lie along its rows. `length` is the stride of a row, and `is_own`
    masks the scales. Without `amax`, the largest magnitudes of the rows, each block of the tile has
    a scale."""
    ROWS: tl.constexpr = y.shape[0]
    COLUMNS: tl.constexpr = y.shape[1]
    BLOCKS: tl.constexpr = place.shape[1]
    blocks = tl.reshape(y, (ROWS, BLOCKS, COLUMNS // BLOCKS))
    if amax is None:
        amax = tl.max(magnitude_bits(blocks), 2)
    scale, factor = scale_of(amax, rounds_up, R)
    numbers = tl.reshape(to_float8(blocks * factor[:, :, None], R.is_e5m2, C), (ROWS, COLUMNS))
    tl.store(tile(data, length, 1, row, column, ROWS, COLUMNS), numbers, mask)
    tl.store(scales + place, scale, is_own)


@triton.jit
def store_along_rows(
    y, data, scales, amax, band, column, end, sizes, rounds_up, R: tl.constexpr, C: tl.constexpr
):
    """`end` is the result's first column outside of the matrix."""
    row, row_end = band[0], band[2]
    rows, _, width, _ = sizes
    BLOCKS: tl.constexpr = R.columns // R.block if R.block else 1
    is_own = row + tl.arange(0, R.rows)[:, None] < row_end
    if amax is not None:
        amax = tl.load(amax_of_rows(amax, band, R), is_own, other=0)
    block = tl.arange(0, BLOCKS)[None, :]
    if R.block:
        is_own &= column + block * R.block < end
    else:
        is_own &= column + block == 0
    place = place_along_rows(band, column, rows, width, R, BLOCKS)
    mask = inside(row, column, row_end, end, R.rows, R.columns)
    quantize(y, mask, data, width, row, column, scales, place, is_own, amax, rounds_up, R, C)


@triton.jit
def store_along_columns(
    y, data, scales, amax, band, column, end, sizes, rounds_up, R: tl.constexpr, C: tl.constexpr
):
    row, begin, row_end = band[0], band[1], band[2]
    rows, _, width, groups = sizes
    BLOCKS: tl.constexpr = R.rows // R.block if R.block else 1
    is_own = column + tl.arange(0, R.columns)[:, None] < end
    if amax is not None:
        amax = tl.load(amax_of_columns(amax, band, column, width, R), is_own, other=0)
    block = tl.arange(0, BLOCKS)[None, :]
    if R.block:
        is_own &= row + block * R.block < row_end
    else:
        is_own &= row + block == begin
    place = place_along_columns(band, column, rows, width, groups, R, BLOCKS)
    mask = inside(column, row, end, row_end, R.columns, R.rows)
    quantize(
        tl.trans(y), mask, data, rows, column, row, scales, place, is_own, amax, rounds_up, R, C
    )


@triton.jit
def store(y, result, band, column, sizes, shift, rounds_up, R: tl.constexpr, C: tl.constexpr):
    """Stores a tile in each direction, at column `column + shift` of the result."""
    data, scales, column_data, column_scales, row_amax, column_amax = result
    end = shift + sizes[1]
    column += shift
    if data is not None:
        store_along_rows(
            y, data, scales, row_amax, band, column, end, sizes, rounds_up, R, C
        )  # fmt: skip
    if column_data is not None:
        store_along_columns(
            y, column_data, column_scales, column_amax, band, column, end, sizes, rounds_up, R, C
        )
