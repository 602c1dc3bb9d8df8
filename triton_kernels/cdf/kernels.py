"""A gate with a location and a scale, y = x F((x - loc)/scale), and its gradients with the sums of
their columns: csrc/gates/cdf.h in Triton; its comments apply here too."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from gelu_kernels.triton_kernels.arithmetic import at_most, fma, negated, quotient
from gelu_kernels.triton_kernels.column_sums import ROW_LANES, add_in_order
from gelu_kernels.triton_kernels.storage import widened
from gelu_kernels.triton_kernels.tile import origin, tile


@triton.jit
def bounded(scale):
    """scale, or half the inverse of the smallest normal number if that is less."""
    return at_most(scale, 2.0**1021 if scale.dtype == tl.float64 else 2.0**125)


@triton.jit
def smallest_normal(x):
    return 2.0**-1022 if x.dtype == tl.float64 else 2.0**-126


@triton.jit
def inverse_of(scale, C: tl.constexpr):
    inverse = quotient(tl.full(scale.shape, 1.0, scale.dtype), scale, C)
    return tl.where(scale < smallest_normal(scale), float("inf"), inverse)


@triton.jit
def standard_score(difference, inverse):
    """z, from x - loc and the inverse of scale."""
    return tl.where(difference == 0, 0.0, difference * inverse)


@triton.jit
def point(
    x, loc, scale, inverse, WIDE: tl.constexpr, TAIL: tl.constexpr, DENSITY: tl.constexpr,
    C: tl.constexpr,
):  # fmt: skip
    """z, F(z) and f(z). WIDE: the results have more than 16 bits."""
    difference = x - loc
    z = difference * inverse
    a = tl.abs(z)
    tail = TAIL(a, C)
    density = DENSITY(a, C)
    is_at_loc = difference == 0
    if WIDE:
        distribution = tl.where(z > 0, 1.0 - tail, tail)
        minus_loc = difference - x
        rest = (x - (difference - minus_loc)) - (loc + minus_loc)
        z_low = (fma(negated(z), scale, difference) + rest) * inverse
        rise = density * tl.where(z > 0, negated(z_low), z_low)
        ratio = quotient(rise * 2.0**64, tail * 2.0**64, C)
        is_in_tail = tail > smallest_normal(tail)
        distribution = tl.where(is_in_tail, fma(density, z_low, distribution), distribution)
        density = tl.where(is_in_tail, fma(density, ratio, density), density)
        distribution = tl.where(is_at_loc, 0.5, distribution)
    else:  # this order takes 10 registers fewer
        distribution = tl.where(z > 0, 1.0 - tail, tl.where(is_at_loc, 0.5, tail))
    return z, distribution, density


@triton.jit
def apply(
    out, x, loc, scale, mask, WIDE: tl.constexpr, TAIL: tl.constexpr, DENSITY: tl.constexpr,
    C: tl.constexpr,
):  # fmt: skip
    """Stores the gate of a tile."""
    stored = tl.load(x, mask)
    x = widened(stored)
    own = bounded(scale)
    z, distribution, density = point(x, loc, own, inverse_of(own, C), WIDE, TAIL, DENSITY, C)
    limit = negated(own * -C.left_limit)  # a literal -0.0 would become 0
    y = tl.where(x == float("-inf"), limit, x * distribution)
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
    WIDE: tl.constexpr = x.dtype.element_ty.primitive_bitwidth > 16
    if (row + ROWS <= rows) & (column + COLUMNS <= columns):
        own_loc, own_scale = widened(tl.load(locs)), widened(tl.load(scales))
        apply(ys, xs, own_loc, own_scale, None, WIDE, TAIL, DENSITY, C)
    else:
        column_mask = column + tl.arange(0, COLUMNS)[None, :] < columns
        mask = (row + tl.arange(0, ROWS)[:, None] < rows) & column_mask
        own_mask = None if ARE_NUMBERS else column_mask
        own_loc, own_scale = widened(tl.load(locs, own_mask)), widened(tl.load(scales, own_mask))
        apply(ys, xs, own_loc, own_scale, mask, WIDE, TAIL, DENSITY, C)


@triton.jit
def backward_rows(
    dx, dy, x, loc, scale, inverse, mask, TAIL: tl.constexpr, DENSITY: tl.constexpr,
    C: tl.constexpr,
):  # fmt: skip
    """Stores dx, and returns the terms of the sums, which are zeros outside of the matrix."""
    WIDE: tl.constexpr = x.dtype.primitive_bitwidth > 16
    dtype: tl.constexpr = x.dtype
    dy, x = widened(dy), widened(x)
    z, distribution, density = point(x, loc, scale, inverse, WIDE, TAIL, DENSITY, C)
    steepness = tl.where(inverse == float("inf"), 0.0, density * inverse)
    slope = tl.where(steepness == 0, 0.0, x * steepness)
    moment = tl.where(steepness == 0, 0.0, slope * z)
    tl.store(dx, (dy * (distribution + slope)).to(dtype), mask)
    return tl.where(mask, negated(dy * slope), 0.0), tl.where(mask, negated(dy * moment), 0.0)


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
    C: tl.constexpr,
    COLUMNS: tl.constexpr,
    COLUMNS_FIRST: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Like ``gate.kernels.sum_columns``, with two sums for each column."""
    if OVERLAPS:
        gdc_launch_dependents()
    block, first = origin(1, COLUMNS, COLUMNS_FIRST)
    column = first + tl.arange(0, COLUMNS)[None, :]
    in_row = column < columns
    locs = tl.broadcast_to(widened(tl.load(loc + column, in_row)), (ROW_LANES, COLUMNS))
    scales = tl.broadcast_to(
        bounded(widened(tl.load(scale + column, in_row, other=1.0))), (ROW_LANES, COLUMNS)
    )
    inverses = inverse_of(scales, C)
    begin = block * block_rows
    end = tl.minimum(begin + block_rows, rows)
    lane = tl.arange(0, ROW_LANES)[:, None]
    loc_sums = tl.zeros((ROW_LANES, COLUMNS), locs.dtype)
    scale_sums = tl.zeros((ROW_LANES, COLUMNS), locs.dtype)
    mask = (begin + lane < end) & in_row
    dys = tl.load(tile(dy, dy_row, dy_column, begin, first, ROW_LANES, COLUMNS), mask)
    xs = tl.load(tile(x, x_row, x_column, begin, first, ROW_LANES, COLUMNS), mask)
    for row in range(begin, end, ROW_LANES):
        next_row = row + ROW_LANES
        next_mask = (next_row + lane < end) & in_row
        next_dys = tl.load(
            tile(dy, dy_row, dy_column, next_row, first, ROW_LANES, COLUMNS), next_mask
        )
        next_xs = tl.load(tile(x, x_row, x_column, next_row, first, ROW_LANES, COLUMNS), next_mask)
        to = tile(dx, dx_row, dx_column, row, first, ROW_LANES, COLUMNS)
        of_loc, of_scale = backward_rows(
            to, dys, xs, locs, scales, inverses, mask, TAIL, DENSITY, C
        )
        loc_sums += of_loc
        scale_sums += of_scale
        dys, xs, mask = next_dys, next_xs, next_mask
    zeros = tl.zeros((COLUMNS,), locs.dtype)
    place = block * columns + column
    tl.store(loc_partial + place, add_in_order(zeros, tl.trans(loc_sums))[None, :], in_row)
    tl.store(scale_partial + place, add_in_order(zeros, tl.trans(scale_sums))[None, :], in_row)
