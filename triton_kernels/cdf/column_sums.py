"""The gradients of a gate with a location and a scale: dx, and in the same pass the sums of its
columns."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from gelu_kernels.triton_kernels.arithmetic import fma, negated
from gelu_kernels.triton_kernels.cdf.distribution import (
    bounded,
    clipped,
    distribution_of,
    finite,
    inverse_of,
    point,
)
from gelu_kernels.triton_kernels.column_sums import ROW_LANES, TURN, add_in_order
from gelu_kernels.triton_kernels.storage import number, widened
from gelu_kernels.triton_kernels.tile import origin, tile


@triton.jit
def add_rows(
    loc_sums, scale_sums, dx, dy, x, loc, extra, inverse, mask, HAS_OTHERS: tl.constexpr,
    TAIL: tl.constexpr, DENSITY: tl.constexpr, DISTRIBUTION_AT: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Stores dx, and returns the sums with the terms of a tile: that of loc, and that of scale or,
    in 16 bits, its quotient by the one of loc. HAS_OTHERS: the tile has rows outside of the matrix,
    whose terms are left out."""
    stored = tl.load(x, mask)
    dy, x = number(tl.load(dy, mask), C), number(stored, C)
    if C.form == "wide":
        z, distribution, density = point(x, loc, extra, inverse, TAIL, DENSITY, C)
        steepness = tl.where(inverse == float("inf"), 0.0, density * inverse)
        slope = tl.where(steepness == 0, 0.0, x * steepness)
        moment = tl.where(steepness == 0, 0.0, slope * z)
        result = dy * (distribution + slope)
        of_loc = negated(dy * slope)
        of_scale = negated(dy * moment)
    else:
        x = finite(x)
        of_scale = x - loc
        limit: tl.constexpr = C.distribution_limit if C.share == 0 else 1.0
        tail, density = DISTRIBUTION_AT(clipped(tl.abs(of_scale) * inverse, limit), C)
        slope = dy * (density * extra * x)
        result = fma(dy, distribution_of(of_scale, tail), slope)
        of_loc = negated(slope)
    tl.store(dx, result.to(stored.dtype), mask)
    if HAS_OTHERS:
        of_loc, of_scale = tl.where(mask, of_loc, 0.0), tl.where(mask, of_scale, 0.0)
    if C.form == "wide":
        return loc_sums + of_loc, scale_sums + of_scale
    else:
        return loc_sums + of_loc, fma(of_loc, of_scale, scale_sums)


@triton.jit
def sum_columns(
    dx,
    dy,
    x,
    loc,
    scale,
    loc_partial,
    scale_partial,
    rows,
    columns,
    block_rows,
    dx_row,
    dy_row,
    x_row,
    dx_column,
    dy_column,
    x_column,
    TAIL: tl.constexpr,
    DENSITY: tl.constexpr,
    DISTRIBUTION_AT: tl.constexpr,
    C: tl.constexpr,
    COLUMNS: tl.constexpr,
    COLUMNS_FIRST: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Like ``gate.kernels.sum_columns``, with two sums for each column, and with the rows of the
    next turns on their way to shared memory. Only the last rows of a block need masks of rows."""
    if OVERLAPS:
        gdc_launch_dependents()
    block, first = origin(1, COLUMNS, COLUMNS_FIRST)
    # As a tile, so that a thread has the columns of its vectors.
    column = tl.broadcast_to(first + tl.arange(0, COLUMNS)[None, :], (ROW_LANES, COLUMNS))
    in_row = column < columns
    locs = widened(tl.load(loc + column, in_row))
    scales = bounded(widened(tl.load(scale + column, in_row, other=1.0)))
    inverses = inverse_of(scales, C)
    extras = scales
    if C.form == "half":
        steepness = tl.where(inverses == float("inf"), 0.0, inverses)
        extras = tl.where(locs == locs, steepness, locs)
        if C.share != 0:
            inverses = inverses * C.share
    begin = block * block_rows
    end = tl.minimum(begin + block_rows, rows)
    turns = begin + (end - begin) // TURN * TURN
    loc_sums = tl.zeros((ROW_LANES, COLUMNS), locs.dtype)
    scale_sums = tl.zeros((ROW_LANES, COLUMNS), locs.dtype)
    for turn in tl.range(begin, turns, TURN, num_stages=C.stages):
        for row in tl.static_range(0, TURN, ROW_LANES):
            loc_sums, scale_sums = add_rows(
                loc_sums,
                scale_sums,
                tile(dx, dx_row, dx_column, turn + row, first, ROW_LANES, COLUMNS),
                tile(dy, dy_row, dy_column, turn + row, first, ROW_LANES, COLUMNS),
                tile(x, x_row, x_column, turn + row, first, ROW_LANES, COLUMNS),
                *(locs, extras, inverses, in_row, False, TAIL, DENSITY, DISTRIBUTION_AT, C),
            )
    for row in range(turns, end, ROW_LANES):
        mask = (row + tl.arange(0, ROW_LANES)[:, None] < end) & in_row
        loc_sums, scale_sums = add_rows(
            loc_sums,
            scale_sums,
            tile(dx, dx_row, dx_column, row, first, ROW_LANES, COLUMNS),
            tile(dy, dy_row, dy_column, row, first, ROW_LANES, COLUMNS),
            tile(x, x_row, x_column, row, first, ROW_LANES, COLUMNS),
            *(locs, extras, inverses, mask, True, TAIL, DENSITY, DISTRIBUTION_AT, C),
        )
    if C.form == "half":
        scale_sums *= extras
    zeros = tl.zeros((COLUMNS,), locs.dtype)
    column = first + tl.arange(0, COLUMNS)
    place = block * columns + column
    tl.store(loc_partial + place, add_in_order(zeros, tl.trans(loc_sums)), column < columns)
    tl.store(scale_partial + place, add_in_order(zeros, tl.trans(scale_sums)), column < columns)
