"""The gradient of a bias: sums of columns in two stages, without atomics, in the order of
csrc/gates/column_sums.h. Each family has its own first stage, in the pass that computes dx.

OVERLAPS is for NVIDIA's GPUs of compute capability 9.0 and more: the second stage is launched while
the first one runs, and waits for its end on the GPU."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

# As in csrc/gates/column_sums.h.
ROW_LANES = tl.constexpr(8)
BLOCK_LANES = tl.constexpr(32)

# Rows of a turn of a first stage's loop. A turn of two tiles has half of the loop's instructions
# for an element; with four the code would need registers for fewer warps.
TURN = tl.constexpr(2 * ROW_LANES)


@triton.jit
def add_in_order(total, sums):
    """total + sums[:, 0] + sums[:, 1] + ... from left to right."""
    columns: tl.constexpr = sums.shape[0]
    lanes: tl.constexpr = sums.shape[1]
    if lanes == 1:
        return total + tl.reshape(sums, (columns,))
    else:
        halves = tl.permute(tl.reshape(sums, (columns, 2, lanes // 2)), (0, 2, 1))
        first, second = tl.split(halves)
        return add_in_order(add_in_order(total, first), second)


@triton.jit
def load_mask(mask, row, column, inside, columns, COLUMNS: tl.constexpr, OCTETS: tl.constexpr):
    """The mask of a tile. OCTETS: rows consist of whole octets, each in a byte of its own."""
    lane = tl.arange(0, ROW_LANES)[:, None].to(tl.int64)
    if OCTETS:
        octet = tl.arange(0, COLUMNS // 8)[None, :]
        there = mask + (row * columns + column >> 3) + (lane * columns >> 3) + octet
        bits = tl.load(there, inside & (column + octet * 8 < columns), other=0).to(tl.int32)
        bits = bits[:, :, None] >> tl.arange(0, 8)[None, None, :]
        return tl.reshape(bits, (ROW_LANES, COLUMNS)) & 1 != 0
    else:
        place = column + tl.arange(0, COLUMNS)[None, :]
        element = (row + lane) * columns + place
        bits = tl.load(mask + (element >> 3), inside & (place < columns), other=0).to(tl.int32)
        return (bits >> (element & 7).to(tl.int32)) & 1 != 0


@triton.jit
def add_partial_sums(
    partial, dbias, blocks, columns, COLUMNS: tl.constexpr, OVERLAPS: tl.constexpr
):
    """dbias = the sum of the blocks, dealt in turn to BLOCK_LANES sums."""
    if OVERLAPS:
        gdc_wait()
    column = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    in_row = column < columns
    lane = tl.arange(0, BLOCK_LANES)[:, None].to(tl.int64)
    sums = tl.zeros((BLOCK_LANES, COLUMNS), partial.dtype.element_ty)
    for block in range(0, blocks, BLOCK_LANES):
        mask = (block + lane < blocks) & in_row
        sums += tl.load(partial + (block + lane) * columns + column, mask, other=0.0)
    total = add_in_order(tl.zeros((COLUMNS,), sums.dtype), tl.trans(sums))[None, :]
    tl.store(dbias + column, total.to(dbias.dtype.element_ty), in_row)
