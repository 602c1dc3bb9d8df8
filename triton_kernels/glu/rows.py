"""The gated linear unit in general, y = g(min(x, limit)) (clamp(up, -limit, limit) + up_offset)
weight, where a row has one weight, and its gradients."""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.arithmetic import at_most, negated
from gelu_kernels.triton_kernels.storage import as_factor, number, widened
from gelu_kernels.triton_kernels.tile import inside, origin, tile


@triton.jit
def limited(x, limit):
    """x, or `limit` if there is one and it is less; NaN stays NaN."""
    if limit is None:
        return x
    else:
        return at_most(x, limit)


@triton.jit
def clamped(x, limit):
    return negated(limited(negated(limited(x, limit)), limit))


@triton.jit
def unless_above(x, limit, y):
    """The gradient of x, from y, that of limited(x, limit); NaN does not exceed the limit."""
    if limit is None:
        return y
    else:
        return tl.where(x > limit, 0.0, y)


@triton.jit
def load_weights(weight, row, rows, ROWS: tl.constexpr):
    """The weights of a tile's rows, as a column."""
    places = row + tl.arange(0, ROWS)[:, None].to(tl.int64)
    return widened(tl.load(weight + places, places < rows, other=0.0))


@triton.jit
def rows_forward(
    y,
    x,
    up,
    weight,
    limit,
    up_offset,
    rows,
    columns,
    y_row,
    x_row,
    up_row,
    y_column,
    x_column,
    up_column,
    VALUE: tl.constexpr,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    COLUMNS_FIRST: tl.constexpr,
):
    """Strides are in elements; each program has a tile of ROWS x COLUMNS."""
    row, column = origin(ROWS, COLUMNS, COLUMNS_FIRST)
    mask = inside(row, column, rows, columns, ROWS, COLUMNS)
    xs = tl.load(tile(x, x_row, x_column, row, column, ROWS, COLUMNS), mask)
    ups = tl.load(tile(up, up_row, up_column, row, column, ROWS, COLUMNS), mask)
    factor = clamped(number(ups, C), limit) + up_offset
    result = as_factor(VALUE(limited(number(xs, C), limit), C), C) * factor
    if weight is not None:
        result *= load_weights(weight, row, rows, ROWS)
    tl.store(tile(y, y_row, y_column, row, column, ROWS, COLUMNS), result.to(xs.dtype), mask)


@triton.jit
def gradients(
    dx, dup, dy, x, up, weights, limit, up_offset, mask, VALUE: tl.constexpr,
    DERIVATIVE: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Stores the gradients of a tile, and returns its terms of the gradients of the weights, which
    are 0 outside of the matrix. All loads come first, so that they overlap."""
    dys = number(tl.load(dy, mask, other=0.0), C)
    stored = tl.load(x, mask, other=0.0)
    ups = number(tl.load(up, mask, other=0.0), C)
    xs = number(stored, C)
    least = limited(xs, limit)
    factor = clamped(ups, limit) + up_offset
    value = as_factor(VALUE(least, C), C)
    dy_weight = dys
    if weights is not None:
        dy_weight = dys * weights
    x_gradient = unless_above(xs, limit, dy_weight * factor * DERIVATIVE(least, C))
    up_gradient = unless_above(ups, limit, unless_above(negated(ups), limit, dy_weight * value))
    tl.store(dx, x_gradient.to(stored.dtype), mask)
    tl.store(dup, up_gradient.to(stored.dtype), mask)
    return dys * factor * value


@triton.jit
def sum_of(lanes):
    """The sums over the columns, in the order of csrc/gates/glu_rows.h."""
    rows: tl.constexpr = lanes.shape[0]
    count: tl.constexpr = lanes.shape[1]
    if count == 1:
        return lanes
    else:
        first, second = tl.split(tl.reshape(lanes, (rows, count // 2, 2)))
        return sum_of(first + second)


@triton.jit
def rows_backward(
    dx,
    dup,
    dweight,
    dy,
    x,
    up,
    weight,
    limit,
    up_offset,
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
    """Strides and tiles are as in ``rows_forward``. To sum dweight, a program goes over whole rows,
    with its columns as the lanes."""
    row, first = origin(ROWS, COLUMNS, COLUMNS_FIRST)
    real: tl.constexpr = tl.float64 if x.dtype.element_ty == tl.float64 else tl.float32
    weights = None
    lanes = tl.zeros((ROWS, COLUMNS), real)
    if weight is not None:
        weights = load_weights(weight, row, rows, ROWS)
    end = first + COLUMNS if dweight is None else columns
    # Predicted for an H200 with tiles copied ahead: 99 % of a copy's speed in 16 bits, else 63.
    stages: tl.constexpr = 1 if dweight is None else C.stages
    for column in tl.range(first, end, COLUMNS, num_stages=stages):
        lanes += gradients(
            tile(dx, dx_row, dx_column, row, column, ROWS, COLUMNS),
            tile(dup, dup_row, dup_column, row, column, ROWS, COLUMNS),
            tile(dy, dy_row, dy_column, row, column, ROWS, COLUMNS),
            tile(x, x_row, x_column, row, column, ROWS, COLUMNS),
            tile(up, up_row, up_column, row, column, ROWS, COLUMNS),
            weights,
            limit,
            up_offset,
            inside(row, column, rows, columns, ROWS, COLUMNS),
            VALUE,
            DERIVATIVE,
            C,
        )
    if dweight is not None:
        places = row + tl.arange(0, ROWS)[:, None].to(tl.int64)
        tl.store(dweight + places, sum_of(lanes).to(dweight.dtype.element_ty), places < rows)
