"""The gradients of a GLU, y = g(x) up, in one pass. The GLU itself is ``gate.kernels.map_rows``
with the factor up."""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.storage import as_factor, number
from gelu_kernels.triton_kernels.tile import origin, tile


@triton.jit
def apply(dx, dup, dy, x, up, mask, VALUE: tl.constexpr, DERIVATIVE: tl.constexpr, C: tl.constexpr):
    """Stores a tile of both gradients. All loads come first, so that they overlap."""
    x = tl.load(x, mask)
    dy = number(tl.load(dy, mask), C)
    up = number(tl.load(up, mask), C)
    xs = number(x, C)
    x_gradient = dy * up * DERIVATIVE(xs, C)
    up_gradient = dy * as_factor(VALUE(xs, C), C)
    tl.store(dx, x_gradient.to(x.dtype), mask)
    tl.store(dup, up_gradient.to(x.dtype), mask)


@triton.jit
def glu_backward(
    dx,
    dup,
    dy,
    x,
    up,
    rows,
    columns,
    dx_row,
    dup_row,
    dy_row,
    x_row,
    up_row,
    dx_column,
    dup_column,
    dy_column,
    x_column,
    up_column,
    VALUE: tl.constexpr,
    DERIVATIVE: tl.constexpr,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    COLUMNS_FIRST: tl.constexpr,
):
    """dx = dy up g'(x) and dup = dy g(x), with strides and tiles as in ``map_rows``."""
    row, column = origin(ROWS, COLUMNS, COLUMNS_FIRST)

    dxs = tile(dx, dx_row, dx_column, row, column, ROWS, COLUMNS)
    dups = tile(dup, dup_row, dup_column, row, column, ROWS, COLUMNS)
    dys = tile(dy, dy_row, dy_column, row, column, ROWS, COLUMNS)
    xs = tile(x, x_row, x_column, row, column, ROWS, COLUMNS)
    ups = tile(up, up_row, up_column, row, column, ROWS, COLUMNS)

    if (row + ROWS <= rows) & (column + COLUMNS <= columns):
        apply(dxs, dups, dys, xs, ups, None, VALUE, DERIVATIVE, C)
    else:
        in_row = column + tl.arange(0, COLUMNS)[None, :] < columns
        mask = (row + tl.arange(0, ROWS)[:, None] < rows) & in_row
        apply(dxs, dups, dys, xs, ups, mask, VALUE, DERIVATIVE, C)
