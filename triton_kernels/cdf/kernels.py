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
from gelu_kernels.triton_kernels.gate.kernels import PROGRAM_BITS
from gelu_kernels.triton_kernels.storage import number, widened
from gelu_kernels.triton_kernels.tile import inside, origin, tile

# Vectors of the forward that a thread loads ahead of those it computes.
AHEAD = tl.constexpr(3)
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
def column_of(loc, scale, C: tl.constexpr):
    """What the forward takes of a location and a scale, the same for every x. In 16 bits `extra` is
    added to y with a share: -0, or a NaN that the share has not. Otherwise it is the scale."""
    loc, own = widened(loc), bounded(widened(scale))
    inverse = inverse_of(own, C)
    if C.form == "wide" or C.share == 0:
        return loc, own, inverse
    else:
        return loc, negated(at_most(tl.abs(loc), 1.0) * own * 0.0), inverse * C.tail_share


@triton.jit
def store_gate(
    y, x, mask, loc, extra, inverse, TAIL: tl.constexpr, DENSITY: tl.constexpr,
    TAIL_AT: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Stores the gate of the stored numbers x."""
    dtype = x.dtype
    x = number(x, C)
    if C.form == "wide":
        _, distribution, _ = point(x, loc, extra, inverse, TAIL, DENSITY, C)
        value = x * distribution
    else:
        difference = x - loc
        if C.share == 0:
            tail = TAIL_AT(tl.abs(standard_score(difference, inverse)), C)
            value = x * distribution_of(difference, tail)
        else:
            tail = TAIL_AT(clipped(tl.abs(difference) * inverse, 1.0), C)
            at_least = negated(at_most(negated(x), C.largest))
            value = fma(at_least, distribution_of(difference, tail), extra)
    if C.form == "wide" or C.share == 0:
        value = tl.where(x == float("-inf"), value_at_minus_infinity(extra, C), value)
    tl.store(y, value.to(dtype), mask)


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
):
    """loc and scale are vectors along the columns. Strides and tiles are as in ``gate.kernels``.

    A thread has a vector in each part of a tile, all in the same columns, and loads some parts
    ahead. The branch before a part keeps ptxas from moving loads, as in ``gate.kernels.map_alone``.
    """
    SIZE: tl.constexpr = min(ROWS * COLUMNS, PROGRAM_BITS // x.dtype.element_ty.primitive_bitwidth)
    HEIGHT: tl.constexpr = SIZE // COLUMNS
    PARTS: tl.constexpr = ROWS // HEIGHT
    row, column = origin(ROWS, COLUMNS, COLUMNS_FIRST)
    xs = tile(x, x_row, x_column, row, column, HEIGHT, COLUMNS)
    ys = tile(y, y_row, y_column, row, column, HEIGHT, COLUMNS)
    lane = tl.arange(0, HEIGHT)[:, None]
    left = tl.minimum(rows - row, ROWS).to(tl.int32)
    in_row = column + tl.arange(0, COLUMNS)[None, :] < columns
    parts = ()
    for k in tl.static_range(AHEAD + PARTS):
        if k == AHEAD:
            locs = tl.load(tile(loc, 0, 1, row, column, 1, COLUMNS), in_row)
            scales = tl.load(tile(scale, 0, 1, row, column, 1, COLUMNS), in_row)
            locs, extras, inverses = column_of(locs, scales, C)
        if k >= AHEAD:
            done = (k - AHEAD) * HEIGHT
            if done < left:
                mask = (done + lane < left) & in_row
                store_gate(
                    ys + done * y_row,
                    parts[k - AHEAD],
                    *(mask, locs, extras, inverses, TAIL, DENSITY, TAIL_AT, C),
                )
        if k < PARTS:
            begun = k * HEIGHT
            parts += (tl.load(xs + begun * x_row, (begun + lane < left) & in_row),)


@triton.jit
def map_tile(
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
):
    """Like ``map_rows``, but loc and scale are numbers, and a thread loads all its vectors first.
    The parts of a tile that is cut off take turns, in few registers."""
    SIZE: tl.constexpr = min(ROWS * COLUMNS, PROGRAM_BITS // x.dtype.element_ty.primitive_bitwidth)
    WIDTH: tl.constexpr = min(COLUMNS, SIZE)
    HEIGHT: tl.constexpr = SIZE // WIDTH
    ACROSS: tl.constexpr = COLUMNS // WIDTH
    PARTS: tl.constexpr = ROWS * COLUMNS // SIZE
    row, column = origin(ROWS, COLUMNS, COLUMNS_FIRST)
    if (row + ROWS <= rows) & (column + COLUMNS <= columns):
        xs = tile(x, x_row, x_column, row, column, HEIGHT, WIDTH)
        ys = tile(y, y_row, y_column, row, column, HEIGHT, WIDTH)
        parts = ()
        for k in tl.static_range(PARTS):
            place = k // ACROSS * HEIGHT * x_row + k % ACROSS * WIDTH * x_column
            parts += (tl.load(xs + place),)
        own_loc, extra, inverse = column_of(tl.load(loc), tl.load(scale), C)
        for k in tl.static_range(PARTS):
            if (k + 1) * SIZE <= rows * columns:  # always: see map_rows
                store_gate(
                    ys + (k // ACROSS * HEIGHT * y_row + k % ACROSS * WIDTH * y_column),
                    parts[k],
                    *(None, own_loc, extra, inverse, TAIL, DENSITY, TAIL_AT, C),
                )
    else:
        cut_loc, cut_extra, cut_inverse = column_of(tl.load(loc), tl.load(scale), C)
        for k in range(PARTS):
            at_row = row + k // ACROSS * HEIGHT
            at_column = column + k % ACROSS * WIDTH
            mask = inside(at_row, at_column, rows, columns, HEIGHT, WIDTH)
            store_gate(
                tile(y, y_row, y_column, at_row, at_column, HEIGHT, WIDTH),
                tl.load(tile(x, x_row, x_column, at_row, at_column, HEIGHT, WIDTH), mask),
                *(mask, cut_loc, cut_extra, cut_inverse, TAIL, DENSITY, TAIL_AT, C),
            )


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
