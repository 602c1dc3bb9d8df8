"""The results of a pass in a tile, before they are quantised. The inputs tell the pass: with dy it
is a backward one, with up that of a gated linear unit."""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.arithmetic import negated
from gelu_kernels.triton_kernels.glu.rows import clamped, limited, load_weights, unless_above
from gelu_kernels.triton_kernels.storage import as_factor, round_value, widened
from gelu_kernels.triton_kernels.tile import inside, tile


@triton.jit
def load(matrix, row_stride, row, column, mask, R: tl.constexpr):
    return tl.load(tile(matrix, row_stride, 1, row, column, R.rows, R.columns), mask)


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
    R: tl.constexpr,
):
    """The gradients dx and dup of a gated linear unit; else the result, rounded and unrounded."""
    x, up, dy, bias, weight, limit, up_offset, x_row, up_row, dy_row = inputs
    mask = inside(row, column, rows, columns, R.rows, R.columns)
    stored = load(x, x_row, row, column, mask, R)
    if up is not None:
        ups = widened(load(up, up_row, row, column, mask, R))
    if dy is not None:
        gradient = widened(load(dy, dy_row, row, column, mask, R))
    number = widened(stored)
    if R.is_cast:
        return number, number
    if bias is not None:
        place = column + tl.arange(0, R.columns)[None, :]
        number += widened(tl.load(bias + place, place < columns))
    least = limited(number, limit)
    if up is not None:
        factor = clamped(ups, limit)
        if up_offset is not None:
            factor += up_offset
    if weight is not None:
        weights = load_weights(weight, row, rows, R.rows)
    if dy is None:
        y = VALUE(least, C)
        if up is not None:
            y = as_factor(y, C) * factor
        if weight is not None:
            y *= weights
    elif up is None:
        y = gradient * DERIVATIVE(least, C)
    else:
        if weight is not None:
            gradient *= weights
        dx = unless_above(number, limit, gradient * factor * DERIVATIVE(least, C))
        dup = gradient * as_factor(VALUE(least, C), C)
        dup = unless_above(ups, limit, unless_above(negated(ups), limit, dup))
    if dy is not None and up is not None:
        return rounded(dx, stored, C), rounded(dup, stored, C)
    else:
        return rounded(y, stored, C), y
