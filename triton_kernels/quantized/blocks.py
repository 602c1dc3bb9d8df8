"""Results in blocks of 32 that share a scale, a power of two (BlockWise1x32): along the rows, along
the columns or both, and the sums of the columns of dx with them."""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.column_sums import ROW_LANES, add_in_order
from gelu_kernels.triton_kernels.quantized.float8 import block_scale, magnitude_bits, to_float8
from gelu_kernels.triton_kernels.quantized.results import results_at
from gelu_kernels.triton_kernels.tile import inside, origin, tile

BLOCK = tl.constexpr(32)


@triton.jit
def scale_place(row, column, columns, SWIZZLED: tl.constexpr):
    """The place of a scale in a matrix of scales with `columns` columns. Swizzled, 128 rows of 4
    scales are a tile of 512 bytes: ScaleLayout of csrc/gates/quantized.h."""
    if SWIZZLED:
        number = (row >> 7) * ((columns + 3) >> 2) + (column >> 2)
        return (number << 9) + ((row & 31) << 4) + ((row >> 3) & 12) + (column & 3)
    else:
        return row * columns + column


@triton.jit
def quantize(
    y,
    data,
    scales,
    row,
    column,
    row_end,
    column_end,
    width,
    rounds_up,
    IS_E5M2: tl.constexpr,
    SWIZZLED: tl.constexpr,
    C: tl.constexpr,
):
    """Stores a tile along its rows, in a part of a matrix of `width` columns. The tile has whole
    blocks."""
    ROWS: tl.constexpr = y.shape[0]
    COLUMNS: tl.constexpr = y.shape[1]
    BLOCKS: tl.constexpr = COLUMNS // BLOCK
    blocks = tl.reshape(y, (ROWS, BLOCKS, BLOCK))
    scale, inverse = block_scale(tl.max(magnitude_bits(blocks), 2), rounds_up, IS_E5M2)
    numbers = to_float8(blocks * inverse[:, :, None], IS_E5M2, C)
    mask = inside(row, column, row_end, column_end, ROWS, COLUMNS)
    places = tile(data, width, 1, row, column, ROWS, COLUMNS)
    tl.store(places, tl.reshape(numbers, (ROWS, COLUMNS)), mask)
    rows = row + tl.arange(0, ROWS)[:, None]
    block = column // BLOCK + tl.arange(0, BLOCKS)[None, :]
    place = scale_place(rows, block, width // BLOCK, SWIZZLED)
    tl.store(scales + place, scale.to(tl.uint8), (rows < row_end) & (block * BLOCK < column_end))


@triton.jit
def quantize_result(
    y,
    result,
    row,
    column,
    rows,
    columns,
    width,
    shift,
    rounds_up,
    IS_E5M2: tl.constexpr,
    SWIZZLED: tl.constexpr,
    C: tl.constexpr,
):
    """Stores a tile in each direction that is wanted."""
    data, scales, column_data, column_scales = result
    column += shift
    end = shift + columns
    if data is not None:
        quantize(
            y, data, scales, row, column, rows, end, width, rounds_up, IS_E5M2, SWIZZLED, C
        )  # fmt: skip
    if column_data is not None:
        quantize(
            tl.trans(y), column_data, column_scales, column, row, end, rows, rows, rounds_up,
            IS_E5M2, SWIZZLED, C
        )  # fmt: skip


@triton.jit
def quantize_bands(
    data,
    scales,
    column_data,
    column_scales,
    second_data,
    second_scales,
    second_column_data,
    second_column_scales,
    partial,
    x,
    up,
    dy,
    bias,
    rows,
    columns,
    block_rows,
    width,
    shift,
    rounds_up,
    x_row,
    up_row,
    dy_row,
    VALUE: tl.constexpr,
    DERIVATIVE: tl.constexpr,
    C: tl.constexpr,
    IS_E5M2: tl.constexpr,
    SWIZZLED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    COLUMNS_FIRST: tl.constexpr,
):
    """One result or two, and partial[b] = the sum of the unrounded dx over block b of the rows, as
    in ``gate.kernels.sum_columns``. Results have `width` columns; the second begins at column
    `shift` of its own."""
    block, column = origin(1, COLUMNS, COLUMNS_FIRST)
    begin = block * block_rows
    first = (data, scales, column_data, column_scales)
    second = (second_data, second_scales, second_column_data, second_column_scales)
    inputs = (x, up, dy, bias, x_row, up_row, dy_row)
    if partial is not None:
        sums = tl.zeros((ROW_LANES * COLUMNS,), tl.float32)
    for row in range(begin, tl.minimum(begin + block_rows, rows), ROWS):
        y, other = results_at(
            inputs, row, column, rows, columns, VALUE, DERIVATIVE, C, ROWS, COLUMNS
        )
        quantize_result(
            y, first, row, column, rows, columns, width, 0, rounds_up, IS_E5M2, SWIZZLED, C
        )  # fmt: skip
        if up is not None and dy is not None:
            quantize_result(
                other, second, row, column, rows, columns, width, shift, rounds_up, IS_E5M2,
                SWIZZLED, C
            )  # fmt: skip
        if partial is not None:
            terms = tl.where(inside(row, column, rows, columns, ROWS, COLUMNS), other, 0.0)
            steps = tl.reshape(terms, (ROWS // ROW_LANES, ROW_LANES * COLUMNS))
            sums = add_in_order(sums, tl.trans(steps))
    if partial is not None:
        lanes = tl.trans(tl.reshape(sums, (ROW_LANES, COLUMNS)))
        total = add_in_order(tl.zeros((COLUMNS,), tl.float32), lanes)
        place = column + tl.arange(0, COLUMNS)
        tl.store(partial + block * columns + place, total, place < columns)
