"""The gradient of a coded derivative with a bias: dx, the product of dy with the codes, and in the
same pass the sums of its columns."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from gelu_kernels.triton_kernels.coded.codes import decode, load_codes
from gelu_kernels.triton_kernels.column_sums import ROW_LANES, add_in_order
from gelu_kernels.triton_kernels.storage import widened
from gelu_kernels.triton_kernels.tile import origin, tile


@triton.jit
def multiply_rows(
    dx, dy, code, factor, row, first, columns, inside, COLUMNS: tl.constexpr,
    BITS: tl.constexpr, LEVELS: tl.constexpr, ZERO: tl.constexpr, NAN: tl.constexpr,
):  # fmt: skip
    """Stores dx, and returns the terms of the sums, which are 0 outside of the matrix."""
    lane = tl.arange(0, ROW_LANES)[:, None].to(tl.int64)
    place = (row + lane) * columns + tl.arange(0, COLUMNS)[None, :]
    codes = load_codes(code, first, place, inside, BITS)
    dys = widened(dy)
    result = dys * decode(codes, factor, dys.dtype, LEVELS, ZERO, NAN)
    tl.store(dx, result.to(dy.dtype), inside)
    return tl.where(inside, result, 0.0)


@triton.jit
def sum_coded_columns(
    dx,
    dy,
    code,
    partial,
    factor,
    rows,
    columns,
    block_rows,
    dx_row,
    dy_row,
    dx_column,
    dy_column,
    COLUMNS: tl.constexpr,
    COLUMNS_FIRST: tl.constexpr,
    BITS: tl.constexpr,
    LEVELS: tl.constexpr,
    ZERO: tl.constexpr,
    NAN: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Like ``gate.kernels.sum_columns``, with the codes in place of the gate."""
    if OVERLAPS:
        gdc_launch_dependents()
    block, first = origin(1, COLUMNS, COLUMNS_FIRST)
    column = first + tl.arange(0, COLUMNS)[None, :]
    in_row = column < columns
    begin = block * block_rows
    end = tl.minimum(begin + block_rows, rows)
    lane = tl.arange(0, ROW_LANES)[:, None]
    sums = tl.zeros((ROW_LANES, COLUMNS), partial.dtype.element_ty)
    for row in range(begin, end, ROW_LANES):
        inside = (row + lane < end) & in_row
        dys = tl.load(tile(dy, dy_row, dy_column, row, first, ROW_LANES, COLUMNS), inside)
        to = tile(dx, dx_row, dx_column, row, first, ROW_LANES, COLUMNS)
        sums += multiply_rows(
            to, dys, code, factor, row, first, columns, inside, COLUMNS, BITS, LEVELS, ZERO, NAN
        )
    total = add_in_order(tl.zeros((COLUMNS,), sums.dtype), tl.trans(sums))[None, :]
    tl.store(partial + block * columns + column, total, in_row)
