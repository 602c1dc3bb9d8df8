"""The SOI map: y = m x, m ~ Bernoulli(F(x)), or F of z as in csrc/gates/cdf.h, with the random bits
of csrc/random and the same mask.

A tile consists of octets: eight elements in row-major order, which share one byte of the mask. A
thread has several octets, or a vector of each.
"""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.cdf.distribution import bounded, inverse_of, standard_score
from gelu_kernels.triton_kernels.octets import (
    byte_of,
    in_matrix,
    place_along,
    selected,
    words_of_octets,
)
from gelu_kernels.triton_kernels.philox import seed_of
from gelu_kernels.triton_kernels.soi.draw import bernoulli, load_parameter, map_whole
from gelu_kernels.triton_kernels.storage import number
from gelu_kernels.triton_kernels.tile import origin


@triton.jit
def map_octets(
    y,
    mask,
    x,
    beside,
    seed,
    octet,
    first,
    rows,
    columns,
    row_step,
    repeat,
    index,
    IN_TAIL: tl.constexpr,
    C: tl.constexpr,
    COLUMNS: tl.constexpr,
    GROUPED: tl.constexpr,
    LOC_IS_NUMBER: tl.constexpr,
    SCALE_IS_NUMBER: tl.constexpr,
):
    """Maps octets of a tile. The pointers point to its first element, which is element number
    `first`; `beside` has the bias, loc and scale or None. `rows` and `columns` of the tile are left
    in the matrix; None says all. All loads come first: the random words do not wait for them."""
    # Before the places: after them it takes up to 0.9 issue slots more, and spills on sm_100.
    lane = tl.arange(0, 8)[None, :]
    row, column = octet // (COLUMNS // 8), octet % (COLUMNS // 8) * 8
    begin = row * row_step + column
    place = begin[:, None] + lane
    inside = None
    in_mask = None
    if rows is not None:
        left, inside = in_matrix(row, column, rows, columns)
        in_mask = left > 0
    key = seed_of(seed)
    result = tl.load(x + place, inside)
    total = number(result, C)
    in_row = place_along(first, begin, column, repeat)
    bias, loc, scale = beside
    if bias is not None:
        total += number(tl.load(bias + in_row, inside), C)
        result = total.to(result.dtype)
    if loc is not None:
        own_scale = load_parameter(scale, in_row, inside, SCALE_IS_NUMBER, C)
        difference = total - load_parameter(loc, in_row, inside, LOC_IS_NUMBER, C)
        total = standard_score(difference, inverse_of(bounded(own_scale), C))
    random = words_of_octets(key, first, begin, index, result, C, GROUPED)
    m = bernoulli(total.to(tl.float32), random, IN_TAIL, C)
    if inside is not None:
        m = m & inside
    tl.store(y + place, selected(result, m, C), inside)
    tl.store(mask + (begin >> 3), byte_of(m, C), in_mask)


@triton.jit
def soi_forward(
    y,
    mask,
    x,
    bias,
    loc,
    scale,
    seed,
    rows,
    columns,
    row_step,
    repeat,
    offset,
    row_length,
    row_stride,
    IN_TAIL: tl.constexpr,
    DRAW: tl.constexpr,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    COLUMNS_FIRST: tl.constexpr,
    OCTETS: tl.constexpr,
    REPEATED: tl.constexpr,
    GROUPED: tl.constexpr,
    IN_ROWS: tl.constexpr,
    LOC_IS_NUMBER: tl.constexpr,
    SCALE_IS_NUMBER: tl.constexpr,
    DRAWS_BY_ESTIMATE: tl.constexpr,
):
    """y = m (x + bias), or m x with loc and scale in F, and the mask, for rows that are whole
    octets, row_step elements apart, or one row that need not be. A program has a tile of ROWS x
    COLUMNS, a thread OCTETS of it.

    REPEATED says that a vector along the columns has `repeat` elements and starts anew after them;
    GROUPED, that `offset` is a multiple of 8 and that all elements follow each other in the whole;
    IN_ROWS, that they do in rows of row_length.
    """
    row, column = origin(ROWS, COLUMNS, COLUMNS_FIRST)
    first = row * row_step + column
    y, x, mask = y + first, x + first, mask + (first >> 3)
    period = None
    if REPEATED:
        period = repeat
    elif bias is not None:
        bias = bias + column
    elif loc is not None:
        if not LOC_IS_NUMBER:
            loc = loc + column
        if not SCALE_IS_NUMBER:
            scale = scale + column
    beside = (bias, loc, scale)
    index = (offset, row_length, row_stride) if IN_ROWS else (offset, None, None)
    STEP: tl.constexpr = ROWS * COLUMNS // 8 // OCTETS
    if (row + ROWS <= rows) & (column + COLUMNS <= columns):
        if DRAWS_BY_ESTIMATE and C.backend == "cuda":
            octet = (offset + first) >> 3
            map_whole(
                y,
                mask,
                x,
                beside,
                seed,
                octet,
                row_step,
                DRAW,
                C,
                COLUMNS,
                STEP,
                OCTETS,
                LOC_IS_NUMBER,
                SCALE_IS_NUMBER,
            )
        else:
            SIZE: tl.constexpr = STEP * min(OCTETS, 2)
            for i in tl.static_range(0, STEP * OCTETS, SIZE):
                map_octets(
                    y,
                    mask,
                    x,
                    beside,
                    seed,
                    i + tl.arange(0, SIZE),
                    first,
                    None,
                    None,
                    row_step,
                    period,
                    index,
                    IN_TAIL,
                    C,
                    COLUMNS,
                    GROUPED,
                    LOC_IS_NUMBER,
                    SCALE_IS_NUMBER,
                )
    else:
        for i in range(OCTETS):  # one at a time: predicates of several take registers
            part = i * STEP + tl.arange(0, STEP)
            map_octets(
                y,
                mask,
                x,
                beside,
                seed,
                part,
                first,
                rows - row,
                columns - column,
                row_step,
                period,
                index,
                IN_TAIL,
                C,
                COLUMNS,
                GROUPED,
                LOC_IS_NUMBER,
                SCALE_IS_NUMBER,
            )


@triton.jit
def select_tile(dx, dy, mask, inside, byte_inside):
    bits = tl.load(mask, byte_inside).to(tl.int32)
    dys = tl.load(dy, inside)
    m = (bits >> tl.arange(0, 8)[None, :]) & 1 != 0
    tl.store(dx, tl.where(m, dys, 0.0), inside)


@triton.jit
def soi_backward(dx, dy, mask, elements, OCTETS: tl.constexpr):
    """dx = dy where the mask is 1, else 0."""
    first = tl.program_id(0).to(tl.int64) * (OCTETS * 8)
    octet = tl.arange(0, OCTETS)[:, None]
    place = octet * 8 + tl.arange(0, 8)[None, :]
    dxs, dys, masks = dx + first + place, dy + first + place, mask + (first >> 3) + octet
    if first + OCTETS * 8 <= elements:
        select_tile(dxs, dys, masks, None, None)
    else:
        select_tile(dxs, dys, masks, first + place < elements, first + octet * 8 < elements)
