"""A gate with a location and a scale, y = x F((x - loc)/scale), and its gradients with the sums of
their columns: csrc/gates/cdf.h in Triton; its comments apply here too."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from gelu_kernels.triton_kernels.arithmetic import (
    at_most,
    fma,
    negated,
    quotient,
    reciprocal,
)
from gelu_kernels.triton_kernels.column_sums import ROW_LANES, TURN, add_in_order
from gelu_kernels.triton_kernels.storage import number, widened
from gelu_kernels.triton_kernels.tile import origin, tile

LARGEST_BFLOAT16 = tl.constexpr(2.0**128 - 2.0**120)


@triton.jit
def bounded(scale):
    """scale, or half the inverse of the smallest normal number if that is less."""
    return at_most(scale, 2.0**1021 if scale.dtype == tl.float64 else 2.0**125)


@triton.jit
def smallest_normal(x):
    return 2.0**-1022 if x.dtype == tl.float64 else 2.0**-126


@triton.jit
def inverse_of(scale, C: tl.constexpr):
    return tl.where(scale < smallest_normal(scale), float("inf"), reciprocal(scale, C))


@triton.jit
def standard_score(difference, inverse):
    """z, from x - loc and the inverse of scale."""
    return tl.where(difference == 0, 0.0, difference * inverse)


@triton.jit
def clipped(x, limit):
    """x, at least 0 and at most `limit`; NaN becomes 0."""
    return tl.minimum(tl.maximum(x, 0.0), limit)


@triton.jit
def finite(x):
    """The largest bfloat16 in place of infinity."""
    return negated(at_most(negated(at_most(x, LARGEST_BFLOAT16)), LARGEST_BFLOAT16))


@triton.jit
def distribution_of(difference, tail):
    return tl.where(difference > 0, 1.0 - tail, tail)


@triton.jit
def value_at_minus_infinity(scale, C: tl.constexpr):
    return negated(scale * -C.left_limit)  # a literal -0.0 would become 0


@triton.jit
def point(x, loc, scale, inverse, TAIL: tl.constexpr, DENSITY: tl.constexpr, C: tl.constexpr):
    """z, F(z) and f(z) in float32 and float64."""
    difference = x - loc
    z = difference * inverse
    a = tl.abs(z)
    tail = TAIL(a, C)
    density = DENSITY(a, C)
    distribution = distribution_of(z, tail)
    minus_loc = difference - x
    rest = (x - (difference - minus_loc)) - (loc + minus_loc)
    z_low = (fma(negated(z), scale, difference) + rest) * inverse
    rise = density * tl.where(z > 0, negated(z_low), z_low)
    ratio = quotient(rise * 2.0**64, tail * 2.0**64, C)
    is_in_tail = tail > smallest_normal(tail)
    distribution = tl.where(is_in_tail, fma(density, z_low, distribution), distribution)
    density = tl.where(is_in_tail, fma(density, ratio, density), density)
    return z, tl.where(difference == 0, 0.5, distribution), density


@triton.jit
def apply(
    out, x, loc, scale, mask, TAIL: tl.constexpr, DENSITY: tl.constexpr, TAIL_AT: tl.constexpr,
    C: tl.constexpr,
):  # fmt: skip
    """Stores the gate of a tile."""
    stored = tl.load(x, mask)
    x = number(stored, C)
    own = bounded(scale)
    inverse = inverse_of(own, C)
    if C.form == "wide":
        _, distribution, _ = point(x, loc, own, inverse, TAIL, DENSITY, C)
        y = tl.where(x == float("-inf"), value_at_minus_infinity(own, C), x * distribution)
    else:
        difference = x - loc
        if C.share == 0:
            tail = TAIL_AT(tl.abs(standard_score(difference, inverse)), C)
            y = x * distribution_of(difference, tail)
            y = tl.where(x == float("-inf"), value_at_minus_infinity(own, C), y)
        else:
            tail = TAIL_AT(clipped(tl.abs(difference) * (inverse * C.tail_share), 1.0), C)
            extra = negated(at_most(tl.abs(loc), 1.0) * own * 0.0)
            x = negated(at_most(negated(x), C.largest))
            y = fma(x, distribution_of(difference, tail), extra)
    tl.store(out, y.to(stored.dtype), mask)


@triton.jit
def map_rows(
    y,
    x,
    loc,
    scale,
    rows,
    columns,
    y_row,
    x_row,
    y_column,
    x_column,
    TAIL: tl.constexpr,
    DENSITY: tl.constexpr,
    TAIL_AT: tl.constexpr,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    COLUMNS_FIRST: tl.constexpr,
    ARE_NUMBERS: tl.constexpr,
):
    """loc and scale are vectors along the columns, or numbers (ARE_NUMBERS). Strides and tiles are
    as in ``gate.kernels``."""
    row, column = origin(ROWS, COLUMNS, COLUMNS_FIRST)
    ys = tile(y, y_row, y_column, row, column, ROWS, COLUMNS)
    xs = tile(x, x_row, x_column, row, column, ROWS, COLUMNS)
    WIDTH: tl.constexpr = 1 if ARE_NUMBERS else COLUMNS
    first = 0 if ARE_NUMBERS else column
    locs = tile(loc, 0, 1, row, first, 1, WIDTH)
    scales = tile(scale, 0, 1, row, first, 1, WIDTH)
    if (row + ROWS <= rows) & (column + COLUMNS <= columns):
        own_loc, own_scale = widened(tl.load(locs)), widened(tl.load(scales))
        apply(ys, xs, own_loc, own_scale, None, TAIL, DENSITY, TAIL_AT, C)
    else:
        column_mask = column + tl.arange(0, COLUMNS)[None, :] < columns
        mask = (row + tl.arange(0, ROWS)[:, None] < rows) & column_mask
        own_mask = None if ARE_NUMBERS else column_mask
        own_loc, own_scale = widened(tl.load(locs, own_mask)), widened(tl.load(scales, own_mask))
        apply(ys, xs, own_loc, own_scale, mask, TAIL, DENSITY, TAIL_AT, C)


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
