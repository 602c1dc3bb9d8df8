"""A gate and the codes of its derivative, and the product of dy with these. A tile consists of
octets, as in ``soi.kernels``."""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.coded.codes import decode, encode, load_codes
from gelu_kernels.triton_kernels.octets import (
    elements_of,
    in_matrix,
    place_along,
    words_of_octets,
)
from gelu_kernels.triton_kernels.philox import seed_of
from gelu_kernels.triton_kernels.storage import number, round_value, widened
from gelu_kernels.triton_kernels.tile import origin


@triton.jit
def store_codes(code, begin, codes, left, BITS: tl.constexpr):
    """Stores the codes of octets; `left` counts the elements in the matrix, and None means all."""
    lane = tl.arange(0, 8)[None, :]
    if BITS == 8:
        inside = None
        if left is not None:
            inside = lane < left[:, None]
        tl.store(code + elements_of(begin), codes.to(tl.uint8), inside)
    else:
        inside = None
        if left is not None:
            codes = tl.where(lane < left[:, None], codes, 0)
            inside = tl.arange(0, 4)[None, :] * 2 < left[:, None]
        low, high = tl.split(tl.reshape(codes, (codes.shape[0], 4, 2)))
        there = code + (begin >> 1)[:, None] + tl.arange(0, 4)[None, :]
        tl.store(there, (low & 15 | high << 4).to(tl.uint8), inside)


@triton.jit
def place_of(octet, row_step, COLUMNS: tl.constexpr):
    """The rows and columns of a tile where octets begin, and how many elements after its first."""
    row, column = octet // (COLUMNS // 8), octet % (COLUMNS // 8) * 8
    return row, column, row * row_step + column


@triton.jit
def load_octets(x, bias, first, begin, column, repeat, inside):
    stored = tl.load(x + elements_of(begin), inside)
    if bias is None:
        return stored, None
    else:
        return stored, tl.load(bias + place_along(first, begin, column, repeat), inside)


@triton.jit
def store_octets(
    y, code, stored, biases, begin, left, inside, seed, dropout, first, index,
    VALUE: tl.constexpr, DERIVATIVE: tl.constexpr, C: tl.constexpr, GROUPED: tl.constexpr,
    DITHER: tl.constexpr, DROPS: tl.constexpr, BITS: tl.constexpr, LEVELS: tl.constexpr,
    ZERO: tl.constexpr, NAN: tl.constexpr,
):  # fmt: skip
    """Stores the results of octets that begin `begin` elements after the first of a tile, `left`
    elements of each in the matrix; None means all."""
    total = number(stored, C)
    if biases is not None:
        total += number(biases, C)
    value = VALUE(total, C)
    derivative = DERIVATIVE(total, C)
    rounding = 0.5
    if seed is not None:
        words = words_of_octets(seed_of(seed), first, begin, index, stored, C, GROUPED)
        if DITHER:
            rounding = (words & 0xFFFF).to(tl.int32).to(tl.float32) * (2.0**-16)
    codes = encode(derivative, rounding, C, LEVELS, ZERO, NAN)
    if DROPS:
        threshold, factor = dropout
        kept = words.to(tl.int64) >= threshold
        result = tl.where(kept, (value * factor).to(stored.dtype), 0.0)
        codes = tl.where(kept, codes, ZERO)
    elif biases is not None:
        result = value.to(stored.dtype)
    else:
        result = round_value(value, stored, C)
    tl.store(y + elements_of(begin), result, inside)
    store_codes(code, begin, codes, left, BITS)


@triton.jit
def coded_forward(
    y,
    code,
    x,
    bias,
    seed,
    rows,
    columns,
    row_step,
    repeat,
    offset,
    row_length,
    row_stride,
    threshold,
    factor,
    VALUE: tl.constexpr,
    DERIVATIVE: tl.constexpr,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    COLUMNS_FIRST: tl.constexpr,
    OCTETS: tl.constexpr,
    REPEATED: tl.constexpr,
    GROUPED: tl.constexpr,
    IN_ROWS: tl.constexpr,
    DITHER: tl.constexpr,
    DROPS: tl.constexpr,
    BITS: tl.constexpr,
    LEVELS: tl.constexpr,
    ZERO: tl.constexpr,
    NAN: tl.constexpr,
):
    """y = g(x + bias) and the codes of g'(x + bias), with tiles and places as in
    ``soi.kernels.soi_forward``."""
    row, column = origin(ROWS, COLUMNS, COLUMNS_FIRST)
    first = row * row_step + column
    y, x = y + first, x + first
    code = code + (first * BITS >> 3)
    period = None
    if REPEATED:
        period = repeat
    elif bias is not None:
        bias = bias + column
    index = (offset, row_length, row_stride) if IN_ROWS else (offset, None, None)
    dropout = (threshold, factor)
    STEP: tl.constexpr = ROWS * COLUMNS // 8 // OCTETS
    if (row + ROWS <= rows) & (column + COLUMNS <= columns):
        AHEAD: tl.constexpr = 3 if x.dtype.element_ty.primitive_bitwidth == 16 else 2
        parts = ()
        for k in tl.static_range(AHEAD + OCTETS):
            if k >= AHEAD:
                # Always. The branch keeps ptxas from moving loads, as in ``gate.kernels``.
                if (k - AHEAD + 1) * STEP * 8 <= rows * columns:
                    _, _, begin = place_of(
                        (k - AHEAD) * STEP + tl.arange(0, STEP), row_step, COLUMNS
                    )
                    store_octets(
                        y, code, *parts[k - AHEAD], begin, None, None, seed, dropout, first, index,
                        VALUE, DERIVATIVE, C, GROUPED, DITHER, DROPS, BITS, LEVELS, ZERO, NAN,
                    )  # fmt: skip
            if k < OCTETS:
                _, at, begin = place_of(k * STEP + tl.arange(0, STEP), row_step, COLUMNS)
                parts += (load_octets(x, bias, first, begin, at, period, None),)
    else:
        for k in range(OCTETS):  # in turn, in few registers
            own_row, own_column, place = place_of(k * STEP + tl.arange(0, STEP), row_step, COLUMNS)
            left, inside = in_matrix(own_row, own_column, rows - row, columns - column)
            part = load_octets(x, bias, first, place, own_column, period, inside)
            store_octets(
                y, code, *part, place, left, inside, seed, dropout, first, index, VALUE,
                DERIVATIVE, C, GROUPED, DITHER, DROPS, BITS, LEVELS, ZERO, NAN,
            )  # fmt: skip


@triton.jit
def multiply(
    dx, dy, code, factor, first, place, inside, BITS: tl.constexpr, LEVELS: tl.constexpr,
    ZERO: tl.constexpr, NAN: tl.constexpr,
):  # fmt: skip
    codes = load_codes(code, first, place, inside, BITS)
    stored = tl.load(dy + place, inside)
    dys = widened(stored)
    result = dys * decode(codes, factor, dys.dtype, LEVELS, ZERO, NAN)
    tl.store(dx + place, result.to(stored.dtype), inside)


@triton.jit
def coded_backward(
    dx,
    dy,
    code,
    elements,
    factor,
    ELEMENTS: tl.constexpr,
    BITS: tl.constexpr,
    LEVELS: tl.constexpr,
    ZERO: tl.constexpr,
    NAN: tl.constexpr,
):
    """dx = dy times the decoded derivative times the factor."""
    first = tl.program_id(0).to(tl.int64) * ELEMENTS
    place = tl.arange(0, ELEMENTS)
    dx, dy = dx + first, dy + first
    if first + ELEMENTS <= elements:
        multiply(dx, dy, code, factor, first, place, None, BITS, LEVELS, ZERO, NAN)
    else:
        inside = first + place < elements
        multiply(dx, dy, code, factor, first, place, inside, BITS, LEVELS, ZERO, NAN)
