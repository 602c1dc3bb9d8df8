"""The tile of a matrix that a program works on."""

import triton
import triton.language as tl


@triton.jit
def origin(ROWS: tl.constexpr, COLUMNS: tl.constexpr, COLUMNS_FIRST: tl.constexpr):
    """The first row and column of the program's tile. COLUMNS_FIRST: the grid has more tiles along
    a row than along a column (see tuning.py)."""
    row = tl.program_id(1 if COLUMNS_FIRST else 0).to(tl.int64) * ROWS
    column = tl.program_id(0 if COLUMNS_FIRST else 1).to(tl.int64) * COLUMNS
    return row, column


@triton.jit
def tile(
    pointer, row_stride, column_stride, row, column, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """The pointers of a tile. Its column offsets have 32 bits where columns are consecutive."""
    rows = tl.arange(0, ROWS)[:, None].to(tl.int64)
    columns = tl.arange(0, COLUMNS)[None, :]
    first = pointer + (row * row_stride + column * column_stride)
    return first + (rows * row_stride + columns * column_stride)


@triton.jit
def inside(row, column, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Which elements of a tile are in the matrix."""
    in_column = row + tl.arange(0, ROWS)[:, None] < rows
    return in_column & (column + tl.arange(0, COLUMNS)[None, :] < columns)
