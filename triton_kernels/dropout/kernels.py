"""A gate, or a gated linear unit, with dropout, and its gradients.

A tile consists of octets: eight elements in row-major order, which share one byte of the mask. A
thread has several octets, or a vector of each. Rows are whole octets, and each operand has its own
distance between them; or there is one row, which need not be.
"""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.octets import (
    byte_of,
    elements_of,
    in_matrix,
    place_along,
    selected,
    words_of_octets,
)
from gelu_kernels.triton_kernels.philox import seed_of
from gelu_kernels.triton_kernels.storage import as_factor, number
from gelu_kernels.triton_kernels.tile import origin


@triton.jit
def place_in(row, column, row_stride):
    """Of the elements of octets, in an operand."""
    return elements_of(row * row_stride + column)


@triton.jit
def map_octets(
    y, mask, x, up, bias, seed, threshold, factor, octet, first, columns, rows_left,
    columns_left, strides, repeat, index, VALUE: tl.constexpr, C: tl.constexpr,
    COLUMNS: tl.constexpr, GROUPED: tl.constexpr,
):  # fmt: skip
    """Maps octets of a tile. The pointers point to its first element, which is element number
    `first`. `rows_left` rows and `columns_left` columns are left in the matrix; None says all. All
    loads come first: the random words do not wait for them."""
    row, column = octet // (COLUMNS // 8), octet % (COLUMNS // 8) * 8
    element = row * columns + column
    inside = None
    in_mask = None
    if rows_left is not None:
        left, inside = in_matrix(row, column, rows_left, columns_left)
        in_mask = left > 0
    y_row, x_row, up_row = strides
    key = seed_of(seed)
    xs = tl.load(x + place_in(row, column, x_row), inside)
    total = number(xs, C)
    if up is not None:
        ups = tl.load(up + place_in(row, column, up_row), inside)
    if bias is not None:
        total += number(tl.load(bias + place_along(first, element, column, repeat), inside), C)
    random = words_of_octets(key, first, element, index, xs, C, GROUPED)
    m = random >= threshold.to(tl.uint32)
    if inside is not None:
        m = m & inside
    result = as_factor(VALUE(total, C), C)
    if up is not None:
        result *= number(ups, C)
    result = (result * factor).to(xs.dtype)
    tl.store(y + place_in(row, column, y_row), selected(result, m, C), inside)
    tl.store(mask + (element >> 3), byte_of(m, C), in_mask)


@triton.jit
def forward(
    y,
    mask,
    x,
    up,
    bias,
    seed,
    threshold,
    factor,
    rows,
    columns,
    y_row,
    x_row,
    up_row,
    repeat,
    offset,
    row_length,
    row_stride,
    VALUE: tl.constexpr,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    COLUMNS_FIRST: tl.constexpr,
    OCTETS: tl.constexpr,
    REPEATED: tl.constexpr,
    GROUPED: tl.constexpr,
    IN_ROWS: tl.constexpr,
):
    """y = m g(x + bias) up factor, and the mask. A program has a tile of ROWS x COLUMNS, a thread
    OCTETS of it.

    REPEATED says that the bias has `repeat` elements and starts anew after them; GROUPED, that
    `offset` is a multiple of 8 and that all elements follow each other in the whole; IN_ROWS, that
    they do in rows of row_length.
    """
    row, column = origin(ROWS, COLUMNS, COLUMNS_FIRST)
    first = row * columns + column
    y, x, mask = y + (row * y_row + column), x + (row * x_row + column), mask + (first >> 3)
    if up is not None:
        up = up + (row * up_row + column)
    period = None
    if REPEATED:
        period = repeat
    elif bias is not None:
        bias = bias + column
    index = (offset, row_length, row_stride) if IN_ROWS else (offset, None, None)
    strides = (y_row, x_row, up_row)
    STEP: tl.constexpr = ROWS * COLUMNS // 8 // OCTETS
    if (row + ROWS <= rows) & (column + COLUMNS <= columns):
        octet = tl.arange(0, STEP * OCTETS)
        map_octets(
            y, mask, x, up, bias, seed, threshold, factor, octet, first, columns, None, None,
            strides, period, index, VALUE, C, COLUMNS, GROUPED,
        )  # fmt: skip
    else:
        for i in tl.static_range(OCTETS):  # one at a time: predicates of several take registers
            part = i * STEP + tl.arange(0, STEP)
            map_octets(
                y, mask, x, up, bias, seed, threshold, factor, part, first, columns,
                rows - row, columns - column, strides, period, index, VALUE, C, COLUMNS, GROUPED,
            )  # fmt: skip


@triton.jit
def select_octets(
    dx, dup, dy, x, up, bias, mask, factor, octet, first, columns, rows_left, columns_left,
    strides, repeat, VALUE: tl.constexpr, DERIVATIVE: tl.constexpr, C: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Like ``map_octets``."""
    row, column = octet // (COLUMNS // 8), octet % (COLUMNS // 8) * 8
    element = row * columns + column
    inside = None
    in_mask = None
    if rows_left is not None:
        left, inside = in_matrix(row, column, rows_left, columns_left)
        in_mask = left > 0
    dx_row, dup_row, dy_row, x_row, up_row = strides
    byte = tl.load(mask + (element >> 3), in_mask).to(tl.int32)
    given = number(tl.load(dy + place_in(row, column, dy_row), inside), C)
    xs = tl.load(x + place_in(row, column, x_row), inside)
    total = number(xs, C)
    if bias is not None:
        total += number(tl.load(bias + place_along(first, element, column, repeat), inside), C)
    if up is not None:
        ups = number(tl.load(up + place_in(row, column, up_row), inside), C)
    given *= factor
    m = (byte[:, None] >> tl.arange(0, 8)[None, :]) & 1 != 0
    if up is not None:
        up_gradient = (given * as_factor(VALUE(total, C), C)).to(xs.dtype)
        tl.store(dup + place_in(row, column, dup_row), selected(up_gradient, m, C), inside)
        given *= ups
    gradient = (given * DERIVATIVE(total, C)).to(xs.dtype)
    tl.store(dx + place_in(row, column, dx_row), selected(gradient, m, C), inside)


@triton.jit
def backward(
    dx,
    dup,
    dy,
    x,
    up,
    bias,
    mask,
    factor,
    rows,
    columns,
    dx_row,
    dup_row,
    dy_row,
    x_row,
    up_row,
    repeat,
    VALUE: tl.constexpr,
    DERIVATIVE: tl.constexpr,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    COLUMNS_FIRST: tl.constexpr,
    OCTETS: tl.constexpr,
    REPEATED: tl.constexpr,
):
    """dx = m dy factor up g'(x + bias) and dup = m dy factor g(x); tiles as in ``forward``."""
    row, column = origin(ROWS, COLUMNS, COLUMNS_FIRST)
    first = row * columns + column
    dx, dy = dx + (row * dx_row + column), dy + (row * dy_row + column)
    x, mask = x + (row * x_row + column), mask + (first >> 3)
    if up is not None:
        up, dup = up + (row * up_row + column), dup + (row * dup_row + column)
    period = None
    if REPEATED:
        period = repeat
    elif bias is not None:
        bias = bias + column
    strides = (dx_row, dup_row, dy_row, x_row, up_row)
    STEP: tl.constexpr = ROWS * COLUMNS // 8 // OCTETS
    if (row + ROWS <= rows) & (column + COLUMNS <= columns):
        octet = tl.arange(0, STEP * OCTETS)
        select_octets(
            dx, dup, dy, x, up, bias, mask, factor, octet, first, columns, None, None,
            strides, period, VALUE, DERIVATIVE, C, COLUMNS,
        )  # fmt: skip
    else:
        for i in tl.static_range(OCTETS):
            part = i * STEP + tl.arange(0, STEP)
            select_octets(
                dx, dup, dy, x, up, bias, mask, factor, part, first, columns, rows - row,
                columns - column, strides, period, VALUE, DERIVATIVE, C, COLUMNS,
            )  # fmt: skip
