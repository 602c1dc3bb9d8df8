"""Quantises along the rows, the columns or both, in bands of rows: BlockWise1x32, BlockWise1x128,
and RowWise as the second pass after ``amax``; and sums the columns of dx."""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.column_sums import ROW_LANES, add_in_order
from gelu_kernels.triton_kernels.quantized.groups import band_of
from gelu_kernels.triton_kernels.quantized.results import results_at
from gelu_kernels.triton_kernels.quantized.store import store
from gelu_kernels.triton_kernels.tile import inside


@triton.jit
def middle_last(x):
    """(a, b, c) to (a·c, b)."""
    A: tl.constexpr = x.shape[0]
    B: tl.constexpr = x.shape[1]
    C: tl.constexpr = x.shape[2]
    return tl.reshape(tl.permute(x, (0, 2, 1)), (A * C, B))


@triton.jit
def quantize_bands(
    data,
    scales,
    column_data,
    column_scales,
    row_amax,
    column_amax,
    second_data,
    second_scales,
    second_column_data,
    second_column_scales,
    second_row_amax,
    second_column_amax,
    ends,
    partial,
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
    rounds_up,
    x_row,
    up_row,
    dy_row,
    VALUE: tl.constexpr,
    DERIVATIVE: tl.constexpr,
    C: tl.constexpr,
    R: tl.constexpr,
):
    """Stores one or two results of `width` columns; the second starts at column `shift`. partial[b]
    is the sum of the unrounded dx over block b of the rows, as in ``gate.kernels.sum_columns``;
    there may be several in a tile."""
    start, begin, end, group, blocks, tiles = band_of(ends, groups, rows, block_rows, R)
    column = tl.program_id(0 if R.columns_first else 1).to(tl.int64) * R.columns
    first = (data, scales, column_data, column_scales, row_amax, column_amax)
    second = (
        second_data, second_scales, second_column_data, second_column_scales, second_row_amax,
        second_column_amax
    )  # fmt: skip
    inputs = (x, up, dy, bias, weight, limit, up_offset, x_row, up_row, dy_row)
    sizes = (rows, columns, width, groups)
    ROWS: tl.constexpr = R.rows
    COLUMNS: tl.constexpr = R.columns
    BLOCKS: tl.constexpr = R.sum_blocks
    if partial is not None:
        sums = tl.zeros((BLOCKS * ROW_LANES * COLUMNS,), tl.float32)
    for row in range(start, tl.minimum(start + block_rows, end), R.rows):
        band = (row, begin, end, group, blocks, tiles)
        y, other = results_at(inputs, row, column, end, columns, VALUE, DERIVATIVE, C, R)
        mask = inside(row, column, end, columns, R.rows, R.columns)
        if ends is not None:  # the last block of a group may be shorter
            y = tl.where(mask, y, 0.0)
        store(y, first, band, column, sizes, 0, rounds_up, R, C)
        if up is not None and dy is not None:
            if R.block == 128:  # recomputed: a tile of 128 rows lacks registers for both
                _, other = results_at(inputs, row, column, end, columns, VALUE, DERIVATIVE, C, R)
            if ends is not None:
                other = tl.where(mask, other, 0.0)
            store(other, second, band, column, sizes, shift, rounds_up, R, C)
        if partial is not None:
            terms = tl.where(mask, other, 0.0)
            steps = tl.reshape(terms, (BLOCKS, ROWS // BLOCKS // ROW_LANES, ROW_LANES * COLUMNS))
            sums = add_in_order(sums, middle_last(steps))
    if partial is not None:
        lanes = middle_last(tl.reshape(sums, (BLOCKS, ROW_LANES, COLUMNS)))
        total = add_in_order(tl.zeros((BLOCKS * COLUMNS,), tl.float32), lanes)
        own = tl.arange(0, BLOCKS)[:, None]
        block = tl.program_id(1 if R.columns_first else 0).to(tl.int64) * BLOCKS + own
        place = column + tl.arange(0, COLUMNS)[None, :]
        there = (start + own * (ROWS // BLOCKS) < rows) & (place < columns)
        total = tl.reshape(total, (BLOCKS, COLUMNS))
        tl.store(partial + block * columns + place, total, there)
