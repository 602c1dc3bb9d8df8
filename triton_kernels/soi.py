"""The SOI map: y = m x, m ~ Bernoulli(F(x)), with the random bits of csrc/random and the same mask.

A tile has 8 elements, which are a byte of the mask, in each row.
"""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.column_sums import ROW_LANES, add_in_order
from gelu_kernels.triton_kernels.map import tile
from gelu_kernels.triton_kernels.storage import widened


@triton.jit
def bernoulli(x, random, IN_TAIL: tl.constexpr, C: tl.constexpr):
    """m for 32 random bits; csrc/random/bernoulli.h has the reasons."""
    u = random.to(tl.uint32, bitcast=True).to(tl.float32)
    return IN_TAIL(x, u, C) != (x > 0) | (x != x)


@triton.jit
def words_of_groups(seed, index, BYTES: tl.constexpr):
    """Those of consecutive elements from `index` on, a multiple of 4: two groups for a row."""
    group = tl.arange(0, BYTES)[:, None] * 2 + tl.arange(0, 2)[None, :]
    w0, w1, w2, w3 = tl.randint4x(seed, index // 4 + group)
    return tl.reshape(tl.join(tl.join(w0, w2), tl.join(w1, w3)), (BYTES, 8))


@triton.jit
def words_of_elements(seed, index):
    w0, w1, w2, w3 = tl.randint4x(seed, index >> 2)
    word = index & 3
    return tl.where(word < 2, tl.where(word == 0, w0, w1), tl.where(word == 2, w2, w3))


@triton.jit
def map_tile(y, mask, x, bias, random, inside, byte_inside, IN_TAIL: tl.constexpr, C: tl.constexpr):
    """The pointers are a tile's; `inside` says which of its elements there are, None that all."""
    given = tl.load(x, inside)
    total = widened(given)
    if bias is not None:
        total += widened(tl.load(bias, inside))
    m = bernoulli(total.to(tl.float32), random, IN_TAIL, C)
    if inside is not None:
        m = m & inside
    tl.store(y, tl.where(m, total, 0.0).to(given.dtype), inside)
    packed = tl.sum(m.to(tl.int32) << tl.arange(0, 8)[None, :], axis=1)
    tl.store(mask, packed.to(tl.uint8), byte_inside)


@triton.jit
def soi_forward(
    y,
    mask,
    x,
    bias,
    seed,
    elements,
    columns,
    offset,
    row_length,
    row_stride,
    IN_TAIL: tl.constexpr,
    C: tl.constexpr,
    BYTES: tl.constexpr,
    GROUPED: tl.constexpr,
    ROWS: tl.constexpr,
):
    """y = m (x + bias), and the mask. GROUPED says that `offset` is a multiple of 4 and that all
    elements follow each other in the whole; ROWS, that they do in rows of row_length."""
    first = tl.program_id(0).to(tl.int64) * (BYTES * 8)
    place = tl.arange(0, BYTES)[:, None] * 8 + tl.arange(0, 8)[None, :]
    byte = first // 8 + tl.arange(0, BYTES)
    element = first + place
    biases = None
    if bias is not None:
        biases = bias + element % columns
    key = tl.load(seed)
    if GROUPED:
        random = words_of_groups(key, offset + first, BYTES)
    else:
        index = offset + element
        if ROWS:
            index = offset + element // row_length * row_stride + element % row_length
        random = words_of_elements(key, index)
    ys, xs, masks = y + first + place, x + first + place, mask + byte
    if first + BYTES * 8 <= elements:
        map_tile(ys, masks, xs, biases, random, None, None, IN_TAIL, C)
    else:
        map_tile(ys, masks, xs, biases, random, element < elements, byte * 8 < elements, IN_TAIL, C)


@triton.jit
def select_tile(dx, dy, mask, inside, byte_inside):
    bits = tl.load(mask, byte_inside).to(tl.int32)
    m = (bits >> tl.arange(0, 8)[None, :]) & 1 != 0
    tl.store(dx, tl.where(m, tl.load(dy, inside), 0.0), inside)


@triton.jit
def soi_backward(dx, dy, mask, elements, BYTES: tl.constexpr):
    """dx = dy where the mask is 1, else 0."""
    first = tl.program_id(0).to(tl.int64) * (BYTES * 8)
    place = tl.arange(0, BYTES)[:, None] * 8 + tl.arange(0, 8)[None, :]
    byte = first // 8 + tl.arange(0, BYTES)[:, None]
    dxs, dys, masks = dx + first + place, dy + first + place, mask + byte
    if first + BYTES * 8 <= elements:
        select_tile(dxs, dys, masks, None, None)
    else:
        select_tile(dxs, dys, masks, first + place < elements, byte * 8 < elements)


@triton.jit
def sum_masked_columns(
    dx,
    dy,
    mask,
    partial,
    rows,
    columns,
    block_rows,
    dx_row,
    dy_row,
    dx_column,
    dy_column,
    COLUMNS: tl.constexpr,
    COLUMNS_FIRST: tl.constexpr,
):
    """The same, and the sums of its columns, as in ``column_sums.sum_columns``."""
    block = tl.program_id(1 if COLUMNS_FIRST else 0).to(tl.int64)
    first = tl.program_id(0 if COLUMNS_FIRST else 1).to(tl.int64) * COLUMNS
    column = first + tl.arange(0, COLUMNS)[None, :]
    in_row = column < columns
    begin = block * block_rows
    end = tl.minimum(begin + block_rows, rows)
    lane = tl.arange(0, ROW_LANES)[:, None]
    sums = tl.zeros((ROW_LANES, COLUMNS), partial.dtype.element_ty)
    for row in range(begin, end, ROW_LANES):
        inside = (row + lane < end) & in_row
        element = (row + lane) * columns + column
        bits = tl.load(mask + element // 8, inside, other=0).to(tl.int64)
        m = (bits >> element % 8) & 1 != 0
        dys = tl.load(tile(dy, dy_row, dy_column, row, first, ROW_LANES, COLUMNS), inside)
        result = tl.where(m, dys, 0.0)
        tl.store(tile(dx, dx_row, dx_column, row, first, ROW_LANES, COLUMNS), result, inside)
        sums += tl.where(inside, widened(result), 0.0)
    total = add_in_order(tl.zeros((COLUMNS,), sums.dtype), tl.trans(sums))[None, :]
    tl.store(partial + block * columns + column, total, in_row)
