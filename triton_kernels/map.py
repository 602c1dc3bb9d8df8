"""An element by element function over rows of x."""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.storage import round_value, widened


@triton.jit
def tile(
    pointer, row_stride, column_stride, row, column, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """The pointers of a tile. What is in it has 32 bits where columns are consecutive."""
    rows = tl.arange(0, ROWS)[:, None].to(tl.int64)
    columns = tl.arange(0, COLUMNS)[None, :]
    first = pointer + (row * row_stride + column * column_stride)
    return first + (rows * row_stride + columns * column_stride)


@triton.jit
def apply(out, ddx, dy, x, bias, mask, bias_mask, F: tl.constexpr, C: tl.constexpr):
    """To a tile: first all loads, so that they are under way together."""
    x = tl.load(x, mask)
    if dy is not None:
        dy = tl.load(dy, mask)
    if ddx is not None:
        ddx = tl.load(ddx, mask)
    total = widened(x)
    if bias is not None:
        total += widened(tl.load(bias, bias_mask))
    result = F(total, C)
    if ddx is not None:
        result = widened(ddx) * widened(dy) * result
    elif dy is not None:
        result = widened(dy) * result
    if C.is_value:
        tl.store(out, round_value(result, x, C), mask)
    else:
        tl.store(out, result.to(x.dtype), mask)


@triton.jit
def map_rows(
    out,
    ddx,
    dy,
    x,
    bias,
    rows,
    columns,
    out_row,
    ddx_row,
    dy_row,
    x_row,
    out_column,
    ddx_column,
    dy_column,
    x_column,
    F: tl.constexpr,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    COLUMNS_FIRST: tl.constexpr,
):
    """out = F(x + bias), times dy and ddx where they are not None. Strides count elements, and a
    program has a tile of ROWS x COLUMNS."""
    row = tl.program_id(1 if COLUMNS_FIRST else 0).to(tl.int64) * ROWS
    column = tl.program_id(0 if COLUMNS_FIRST else 1).to(tl.int64) * COLUMNS

    outs = tile(out, out_row, out_column, row, column, ROWS, COLUMNS)
    xs = tile(x, x_row, x_column, row, column, ROWS, COLUMNS)
    dys = None
    ddxs = None
    biases = None
    if dy is not None:
        dys = tile(dy, dy_row, dy_column, row, column, ROWS, COLUMNS)
    if ddx is not None:
        ddxs = tile(ddx, ddx_row, ddx_column, row, column, ROWS, COLUMNS)
    if bias is not None:
        biases = tile(bias, 0, 1, row, column, 1, COLUMNS)

    if (row + ROWS <= rows) & (column + COLUMNS <= columns):
        apply(outs, ddxs, dys, xs, biases, None, None, F, C)
    else:
        column_mask = column + tl.arange(0, COLUMNS)[None, :] < columns
        mask = (row + tl.arange(0, ROWS)[:, None] < rows) & column_mask
        apply(outs, ddxs, dys, xs, biases, mask, column_mask, F, C)
