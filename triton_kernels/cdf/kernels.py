"""A gate with a location and a scale, y = x F((x - loc)/scale)."""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.arithmetic import at_most, fma, negated
from gelu_kernels.triton_kernels.cdf.distribution import (
    bounded,
    clipped,
    distribution_of,
    inverse_of,
    point,
    standard_score,
    value_at_minus_infinity,
)
from gelu_kernels.triton_kernels.gate.kernels import PROGRAM_BITS
from gelu_kernels.triton_kernels.storage import number, widened
from gelu_kernels.triton_kernels.tile import inside, origin, tile

# Vectors that a thread loads ahead of those it computes.
AHEAD = tl.constexpr(3)


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
