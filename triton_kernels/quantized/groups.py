"""Finds the group of a program's rows: RowGroups of csrc/gates/quantized.h."""

import triton
import triton.language as tl

LANES = tl.constexpr(32)  # one warp: each warp finds the group without shared memory


@triton.jit
def ceil_div(a, b):
    return (a + (b - 1)) // b


@triton.jit
def most_blocks(rows, groups, BLOCK: tl.constexpr):
    """An upper bound for this many rows."""
    return (rows + (BLOCK - 1) * groups) // BLOCK


@triton.jit
def load_ends(ends, k, groups, rows):
    """The ends of groups k, clamped to the matrix; 0 where there is no group."""
    loaded = tl.load(ends + k, (k >= 0) & (k < groups), other=0)
    return tl.minimum(tl.maximum(loaded, 0), tl.minimum(rows, 2**31 - 1).to(tl.int32))


@triton.jit
def band_of(ends, groups, rows, block_rows, R: tl.constexpr):
    """A program's first row; its group's first row, end and number; and the number of blocks and of
    tiles of 128 rows in all earlier groups. A band may be empty.

    Each group starts a new band. Group k starts with program begin // R.rows + k, which no earlier
    group needs. Ends out of order select other rows, but never outside of the matrix.
    """
    band = tl.program_id(1 if R.columns_first else 0)
    if ends is None:
        zero = tl.zeros((), tl.int64)
        return band.to(tl.int64) * block_rows, zero, rows, zero, zero, zero
    else:
        BLOCK: tl.constexpr = R.block if R.block else 128
        before = tl.zeros((LANES,), tl.int32)
        begins = tl.zeros((LANES,), tl.int32)
        blocks = tl.zeros((LANES,), tl.int32)
        tiles = tl.zeros((LANES,), tl.int32)
        for first in range(0, groups, LANES):
            k = first + tl.arange(0, LANES)
            end = load_ends(ends, k, groups, rows)
            size = tl.maximum(end - load_ends(ends, k - 1, groups, rows), 0)
            is_before = (k < groups) & (end // R.rows + k < band)
            before += tl.where(is_before, 1, 0)
            begins = tl.maximum(begins, tl.where(is_before, end, 0))
            blocks += tl.where(is_before, ceil_div(size, BLOCK), 0)
            tiles += tl.where(is_before, ceil_div(size, 128), 0)
        group = tl.sum(before)
        begin = tl.max(begins)
        end = tl.maximum(load_ends(ends, group, groups, rows), begin)
        in_group = tl.maximum(band - (begin // R.rows + group), 0)
        row = begin.to(tl.int64) + in_group.to(tl.int64) * R.rows
        last_block = most_blocks(rows, groups, BLOCK) - ceil_div(end - begin, BLOCK)
        last_tile = most_blocks(rows, groups, 128) - ceil_div(end - begin, 128)
        first_block = tl.minimum(tl.maximum(tl.sum(blocks), 0), last_block)
        first_tile = tl.minimum(tl.maximum(tl.sum(tiles), 0), last_tile)
        return row, begin.to(tl.int64), end.to(tl.int64), group, first_block, first_tile
