"""The results of a pass in a tile, before they are quantised. The inputs tell the pass: with dy it
is a backward one, with up that of a gated linear unit."""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.storage import as_factor, round_value, widened
from gelu_kernels.triton_kernels.tile import inside, tile


@triton.jit
def load(matrix, row_stride, row, column, mask, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    return tl.load(tile(matrix, row_stride, 1, row, column, ROWS, COLUMNS), mask)


@triton.jit
def rounded(y, x, C: tl.constexpr):
    """A result rounded to x's dtype."""
    if C.is_value:
        return widened(round_value(y, x, C))
    else:
        return widened(y.to(x.dtype))


@triton.jit
def results_at(
    inputs,
    row,
    column,
    rows,
    columns,
    VALUE: tl.constexpr,
    DERIVATIVE: tl.constexpr,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The gradients dx and dup of a gated linear unit; else the result, rounded and unrounded."""
    x, up, dy, bias, x_row, up_row, dy_row = inputs
    mask = inside(row, column, rows, columns, ROWS, COLUMNS)
    stored = load(x, x_row, row, column, mask, ROWS, COLUMNS)
    if up is not None:
        factor = widened(load(up, up_row, row, column, mask, ROWS, COLUMNS))
    if dy is not None:
        gradient = widened(load(dy, dy_row, row, column, mask, ROWS, COLUMNS))
    number = widened(stored)
    if bias is not None:
        place = column + tl.arange(0, COLUMNS)[None, :]
        number += widened(tl.load(bias + place, place < columns))
    if dy is None:
        y = VALUE(number, C)
        if up is not None:
            y = as_factor(y, C) * factor
    elif up is None:
        y = gradient * DERIVATIVE(number, C)
    else:
        dx = gradient * factor * DERIVATIVE(number, C)
        dup = gradient * as_factor(VALUE(number, C), C)
    if dy is not None and up is not None:
        return rounded(dx, stored, C), rounded(dup, stored, C)
    else:
        return rounded(y, stored, C), y
