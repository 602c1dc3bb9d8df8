"""Backward with a bias: dx, and in the same pass the sums of its columns, in two stages, without
atomics, in the order of csrc/gates/column_sums.h."""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.map import tile
from gelu_kernels.triton_kernels.storage import widened

# Of csrc/gates/column_sums.h.
ROW_LANES = tl.constexpr(8)
BLOCK_LANES = tl.constexpr(32)


@triton.jit
def add_in_order(total, sums):
    """total + sums[:, 0] + sums[:, 1] + ... from left to right."""
    columns: tl.constexpr = sums.shape[0]
    lanes: tl.constexpr = sums.shape[1]
    if lanes == 1:
        return total + tl.reshape(sums, (columns,))
    else:
        halves = tl.permute(tl.reshape(sums, (columns, 2, lanes // 2)), (0, 2, 1))
        first, second = tl.split(halves)
        return add_in_order(add_in_order(total, first), second)


@triton.jit
def backward_rows(dx, dy, x, bias, mask, F: tl.constexpr, C: tl.constexpr):
    """Stores dx; what is outside of the matrix is to add a zero."""
    result = widened(dy) * F(widened(x) + bias, C)
    tl.store(dx, result.to(x.dtype), mask)
    return tl.where(mask, result, 0.0)


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
):
    """dx = dy F(x + bias), and partial[b] = the sum of the unrounded dx over block b of the rows.

    The rows of a block are dealt out in turn to the rows of a tile. Two tiles are loaded before one
    is computed.
    """
    block = tl.program_id(1 if COLUMNS_FIRST else 0).to(tl.int64)
    first = tl.program_id(0 if COLUMNS_FIRST else 1).to(tl.int64) * COLUMNS
    column = first + tl.arange(0, COLUMNS)[None, :]
    in_row = column < columns
    biases = widened(tl.load(bias + column, in_row))
    begin = block * block_rows
    end = tl.minimum(begin + block_rows, rows)
    lane = tl.arange(0, ROW_LANES)[:, None]
    sums = tl.zeros((ROW_LANES, COLUMNS), biases.dtype)
    for row in range(begin, end, 2 * ROW_LANES):
        next_row = row + ROW_LANES
        mask = (row + lane < end) & in_row
        next_mask = (next_row + lane < end) & in_row
        dys = tl.load(tile(dy, dy_row, dy_column, row, first, ROW_LANES, COLUMNS), mask)
        xs = tl.load(tile(x, x_row, x_column, row, first, ROW_LANES, COLUMNS), mask)
        next_dys = tl.load(
            tile(dy, dy_row, dy_column, next_row, first, ROW_LANES, COLUMNS), next_mask
        )
        next_xs = tl.load(tile(x, x_row, x_column, next_row, first, ROW_LANES, COLUMNS), next_mask)
        to = tile(dx, dx_row, dx_column, row, first, ROW_LANES, COLUMNS)
        sums += backward_rows(to, dys, xs, biases, mask, F, C)
        to = tile(dx, dx_row, dx_column, next_row, first, ROW_LANES, COLUMNS)
        sums += backward_rows(to, next_dys, next_xs, biases, next_mask, F, C)
    total = add_in_order(tl.zeros((COLUMNS,), sums.dtype), tl.trans(sums))[None, :]
    tl.store(partial + block * columns + column, total, in_row)


@triton.jit
def add_partial_sums(partial, dbias, blocks, columns, COLUMNS: tl.constexpr):
    """dbias = the sum of the blocks, which are dealt out in turn to BLOCK_LANES sums."""
    column = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    in_row = column < columns
    lane = tl.arange(0, BLOCK_LANES)[:, None].to(tl.int64)
    sums = tl.zeros((BLOCK_LANES, COLUMNS), partial.dtype.element_ty)
    for block in range(0, blocks, BLOCK_LANES):
        mask = (block + lane < blocks) & in_row
        sums += tl.load(partial + (block + lane) * columns + column, mask, other=0.0)
    total = add_in_order(tl.zeros((COLUMNS,), sums.dtype), tl.trans(sums))[None, :]
    tl.store(dbias + column, total.to(dbias.dtype.element_ty), in_row)
