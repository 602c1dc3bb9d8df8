"""The gradient of a gate with dropout and a bias: dx, and in the same pass the sums of its
columns."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from gelu_kernels.triton_kernels.column_sums import ROW_LANES, add_in_order, load_mask
from gelu_kernels.triton_kernels.storage import number, widened
from gelu_kernels.triton_kernels.tile import origin, tile


@triton.jit
def backward_rows(dx, dy, x, bias, m, factor, inside, F: tl.constexpr, C: tl.constexpr):
    """Stores dx, and returns the terms of the sums, which are 0 outside of the matrix."""
    result = tl.where(m, number(dy, C) * factor * F(number(x, C) + bias, C), 0.0)
    tl.store(dx, result.to(x.dtype), inside)
    return tl.where(inside, result, 0.0)


@triton.jit
def sum_dropped_columns(
    dx,
    dy,
    x,
    bias,
    mask,
    partial,
    factor,
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
    OCTETS: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Like ``gate.kernels.sum_columns``, with the mask of dropout."""
    if OVERLAPS:
        gdc_launch_dependents()
    block, first = origin(1, COLUMNS, COLUMNS_FIRST)
    column = first + tl.arange(0, COLUMNS)[None, :]
    in_row = column < columns
    biases = widened(tl.load(bias + column, in_row))
    begin = block * block_rows
    end = tl.minimum(begin + block_rows, rows)
    lane = tl.arange(0, ROW_LANES)[:, None]
    sums = tl.zeros((ROW_LANES, COLUMNS), biases.dtype)
    for row in range(begin, end, 2 * ROW_LANES):
        next_row = row + ROW_LANES
        in_rows, next_in_rows = row + lane < end, next_row + lane < end
        inside, next_inside = in_rows & in_row, next_in_rows & in_row
        m = load_mask(mask, row, first, in_rows, columns, COLUMNS, OCTETS)
        next_m = load_mask(mask, next_row, first, next_in_rows, columns, COLUMNS, OCTETS)
        dys = tl.load(tile(dy, dy_row, dy_column, row, first, ROW_LANES, COLUMNS), inside)
        xs = tl.load(tile(x, x_row, x_column, row, first, ROW_LANES, COLUMNS), inside)
        next_dys = tl.load(
            tile(dy, dy_row, dy_column, next_row, first, ROW_LANES, COLUMNS), next_inside
        )
        next_xs = tl.load(
            tile(x, x_row, x_column, next_row, first, ROW_LANES, COLUMNS), next_inside
        )
        to = tile(dx, dx_row, dx_column, row, first, ROW_LANES, COLUMNS)
        sums += backward_rows(to, dys, xs, biases, m, factor, inside, F, C)
        to = tile(dx, dx_row, dx_column, next_row, first, ROW_LANES, COLUMNS)
        sums += backward_rows(to, next_dys, next_xs, biases, next_m, factor, next_inside, F, C)
    total = add_in_order(tl.zeros((COLUMNS,), sums.dtype), tl.trans(sums))[None, :]
    tl.store(partial + block * columns + column, total, in_row)
