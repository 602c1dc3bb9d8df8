"""A function of a gate, element by element, and dx with the sums of its columns."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from gelu_kernels.triton_kernels.column_sums import ROW_LANES, TURN, add_in_order
from gelu_kernels.triton_kernels.storage import as_factor, number, round_value, widened
from gelu_kernels.triton_kernels.tile import inside, origin, tile
from gelu_kernels.triton_kernels.tuning import THREADS, VECTOR_BYTES

# One access of all threads of a program.
PROGRAM_BITS = tl.constexpr(THREADS * VECTOR_BYTES * 8)


@triton.jit
def apply(out, other, factor, x, bias, mask, bias_mask, F: tl.constexpr, C: tl.constexpr):
    """Stores a tile of the result. All loads come first, so that they overlap."""
    x = tl.load(x, mask)
    if factor is not None:
        factor = tl.load(factor, mask)
    if other is not None:
        other = tl.load(other, mask)
    total = number(x, C)
    if bias is not None:
        total += widened(tl.load(bias, bias_mask))
    result = F(total, C)
    if other is not None:
        result = number(other, C) * number(factor, C) * result
    elif factor is not None:
        if C.order == "value":  # a factor of a gated linear unit
            result = as_factor(result, C)
        result = number(factor, C) * result
    if C.is_value:
        tl.store(out, round_value(result, x, C), mask)
    else:
        tl.store(out, result.to(x.dtype), mask)


@triton.jit
def map_rows(
    out,
    other,
    factor,
    x,
    bias,
    rows,
    columns,
    out_row,
    other_row,
    factor_row,
    x_row,
    out_column,
    other_column,
    factor_column,
    x_column,
    F: tl.constexpr,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    COLUMNS_FIRST: tl.constexpr,
):
    """out = F(x + bias) times the factors that are not None. Strides are in elements; each program
    has a tile of ROWS x COLUMNS."""
    row, column = origin(ROWS, COLUMNS, COLUMNS_FIRST)

    outs = tile(out, out_row, out_column, row, column, ROWS, COLUMNS)
    xs = tile(x, x_row, x_column, row, column, ROWS, COLUMNS)
    factors = None
    others = None
    biases = None
    if factor is not None:
        factors = tile(factor, factor_row, factor_column, row, column, ROWS, COLUMNS)
    if other is not None:
        others = tile(other, other_row, other_column, row, column, ROWS, COLUMNS)
    if bias is not None:
        biases = tile(bias, 0, 1, row, column, 1, COLUMNS)

    if (row + ROWS <= rows) & (column + COLUMNS <= columns):
        apply(outs, others, factors, xs, biases, None, None, F, C)
    else:
        column_mask = column + tl.arange(0, COLUMNS)[None, :] < columns
        mask = (row + tl.arange(0, ROWS)[:, None] < rows) & column_mask
        apply(outs, others, factors, xs, biases, mask, column_mask, F, C)


@triton.jit
def store_value(out, x, mask, F: tl.constexpr, C: tl.constexpr):
    tl.store(out, round_value(F(number(x, C), C), x, C), mask)


@triton.jit
def map_alone(
    out,
    x,
    rows,
    columns,
    out_row,
    x_row,
    out_column,
    x_column,
    F: tl.constexpr,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    COLUMNS_FIRST: tl.constexpr,
):
    """out = F(x), the value of a gate, with strides and tiles as in ``map_rows``. A thread has a
    vector in each part of a tile, and loads all that are whole before it computes the first. The
    branch before a part keeps ptxas from moving its load to where it is needed, one latency after
    the other."""
    SIZE: tl.constexpr = min(ROWS * COLUMNS, PROGRAM_BITS // x.dtype.element_ty.primitive_bitwidth)
    WIDTH: tl.constexpr = min(COLUMNS, SIZE)
    HEIGHT: tl.constexpr = SIZE // WIDTH
    ACROSS: tl.constexpr = COLUMNS // WIDTH
    PARTS: tl.constexpr = ROWS * COLUMNS // SIZE
    first_row, first_column = origin(ROWS, COLUMNS, COLUMNS_FIRST)
    parts = ()
    for k in tl.static_range(PARTS):
        row = first_row + k // ACROSS * HEIGHT
        column = first_column + k % ACROSS * WIDTH
        is_whole = (row + HEIGHT <= rows) & (column + WIDTH <= columns)
        # Compared as tiles: where one is expected, Triton's interpreter makes int64 of a number.
        end_row = tl.full((HEIGHT, WIDTH), row + HEIGHT, tl.int64)
        end_column = tl.full((HEIGHT, WIDTH), column + WIDTH, tl.int64)
        mask = (end_row <= rows) & (end_column <= columns)
        loaded = tl.load(tile(x, x_row, x_column, row, column, HEIGHT, WIDTH), mask)
        parts += ((row, column, is_whole, loaded),)
    for k in tl.static_range(PARTS):
        row, column, is_whole, loaded = parts[k]
        outs = tile(out, out_row, out_column, row, column, HEIGHT, WIDTH)
        if is_whole:
            store_value(outs, loaded, None, F, C)
        else:
            mask = inside(row, column, rows, columns, HEIGHT, WIDTH)
            cut = tl.load(tile(x, x_row, x_column, row, column, HEIGHT, WIDTH), mask)
            store_value(outs, cut, mask, F, C)


@triton.jit
def add_rows(
    sums, dx, dy, x, bias, mask, HAS_OTHERS: tl.constexpr, F: tl.constexpr, C: tl.constexpr
):
    """Stores dx, and returns the sums with the terms of a tile. HAS_OTHERS: the tile has rows
    outside of the matrix, whose terms are 0."""
    stored = tl.load(x, mask)
    result = widened(tl.load(dy, mask)) * F(widened(stored) + bias, C)
    tl.store(dx, result.to(stored.dtype), mask)
    return sums + (tl.where(mask, result, 0.0) if HAS_OTHERS else result)


@triton.jit
def sum_columns(
    dx,
    dy,
    x,
    bias,
    partial,
    rows,
    columns,
    block_rows,
    dx_row,
    dy_row,
    x_row,
    dx_column,
    dy_column,
    x_column,
    F: tl.constexpr,
    C: tl.constexpr,
    COLUMNS: tl.constexpr,
    COLUMNS_FIRST: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """dx = dy F(x + bias), and partial[b] = the sum of the unrounded dx over block b of the rows.

    The rows of a block are dealt in turn to the rows of a tile. On NVIDIA's GPUs the rows of the
    next turns are copied into shared memory. Only the last rows need masks of rows.
    """
    if OVERLAPS:
        gdc_launch_dependents()
    block, first = origin(1, COLUMNS, COLUMNS_FIRST)
    # As a tile, so that a thread has the columns of its vectors.
    column = tl.broadcast_to(first + tl.arange(0, COLUMNS)[None, :], (ROW_LANES, COLUMNS))
    in_row = column < columns
    biases = widened(tl.load(bias + column, in_row))
    begin = block * block_rows
    end = tl.minimum(begin + block_rows, rows)
    turns = begin + (end - begin) // TURN * TURN
    sums = tl.zeros((ROW_LANES, COLUMNS), biases.dtype)
    for turn in tl.range(begin, turns, TURN, num_stages=C.stages):
        for row in tl.static_range(0, TURN, ROW_LANES):
            sums = add_rows(
                sums,
                tile(dx, dx_row, dx_column, turn + row, first, ROW_LANES, COLUMNS),
                tile(dy, dy_row, dy_column, turn + row, first, ROW_LANES, COLUMNS),
                tile(x, x_row, x_column, turn + row, first, ROW_LANES, COLUMNS),
                *(biases, in_row, False, F, C),
            )
    for row in range(turns, end, ROW_LANES):
        mask = (row + tl.arange(0, ROW_LANES)[:, None] < end) & in_row
        sums = add_rows(
            sums,
            tile(dx, dx_row, dx_column, row, first, ROW_LANES, COLUMNS),
            tile(dy, dy_row, dy_column, row, first, ROW_LANES, COLUMNS),
            tile(x, x_row, x_column, row, first, ROW_LANES, COLUMNS),
            *(biases, mask, True, F, C),
        )
    column = first + tl.arange(0, COLUMNS)
    place = block * columns + column
    total = add_in_order(tl.zeros((COLUMNS,), sums.dtype), tl.trans(sums))
    tl.store(partial + place, total, column < columns)
