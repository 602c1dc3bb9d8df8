"""The place of each scale in memory: ScaleLayout of csrc/gates/quantized.h."""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.quantized.groups import ceil_div, most_blocks


@triton.jit
def scale_place(row, block, rows, blocks, R: tl.constexpr):
    """In a matrix of rows x blocks scales."""
    if R.layout == "swizzled":  # 128 rows of 4 scales are a tile of 512 bytes
        number = (row >> 7) * ((blocks + 3) >> 2) + (block >> 2)
        return (number << 9) + ((row & 31) << 4) + ((row >> 3) & 12) + (block & 3)
    elif R.layout == "packed":  # four blocks are a word
        words = (block >> 2) * ((rows + 3) >> 2 << 2) + row
        return (words << 2) + (block & 3)
    elif R.layout == "columns":
        return row + block * rows
    else:
        return row * blocks + block


@triton.jit
def place_along_rows(band, column, rows, width, R: tl.constexpr, BLOCKS: tl.constexpr):
    """The places for a tile's rows x blocks."""
    row, begin, _, _, _, first_tile = band
    BLOCK: tl.constexpr = R.block if R.block else R.columns
    if R.layout == "swizzled":  # a group begins with a tile
        row += first_tile * 128 - begin
    places = row + tl.arange(0, R.rows)[:, None]
    block = (column // BLOCK if R.block else 0) + tl.arange(0, BLOCKS)[None, :]
    return scale_place(places, block, rows, width // BLOCK, R)


@triton.jit
def place_along_columns(band, column, rows, width, groups, R: tl.constexpr, BLOCKS: tl.constexpr):
    """The places for a tile's columns x blocks. Swizzled scales form one matrix per group."""
    row, begin, end, group, first_block, first_tile = band
    BLOCK: tl.constexpr = R.block if R.block else R.rows
    places = column + tl.arange(0, R.columns)[:, None]
    own = (row - begin) // BLOCK if R.block else group.to(tl.int64)
    block = own + tl.arange(0, BLOCKS)[None, :]
    if R.layout == "swizzled":
        first = first_tile * ceil_div(width, 128) * 512
        return first + scale_place(places, block, width, ceil_div(end - begin, BLOCK), R)
    elif R.block:
        blocks = most_blocks(rows, groups, BLOCK)
        return scale_place(places, first_block + block, width, blocks, R)
    else:
        return scale_place(places, block, width, groups, R)
