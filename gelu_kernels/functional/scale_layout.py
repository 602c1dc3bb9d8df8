"""Finds the scales of 8-bit numbers in the layouts of the quantised operators."""

from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

TILE = 128  # rows of a tile of swizzled scales, which has four scales of each
BLOCKS = {"BlockWise1x128": 128, "BlockWise1x32": 32}


class Groups(NamedTuple):
    """Of each row, in its group: its number, and the rows, blocks and tiles of the groups before.

    Rows after the last end count as rows of the last group.
    """

    row: Tensor
    tiles: Tensor  # of the row's own group
    first_block: Tensor
    first_tile: Tensor


def groups_of(offsets: Tensor, rows: int, block: int | None) -> Groups:
    """Of rows in groups with these ends. Without ``block``, a group is one block."""
    ends = offsets.long()
    begins = torch.cat([torch.zeros_like(ends[:1]), ends[:-1]])
    counts = ends - begins
    tiles = (counts + TILE - 1) // TILE
    blocks = torch.ones_like(counts) if block is None else (counts + block - 1) // block
    row = torch.arange(rows, device=offsets.device)
    own = torch.searchsorted(ends, row, right=True).clamp(max=ends.numel() - 1)
    firsts = (t.cumsum(0) - t for t in (blocks, tiles))
    return Groups(row - begins[own], tiles[own], *(first[own] for first in firsts))


def _swizzled_place(row: Tensor, column: Tensor, tiles: int | Tensor) -> Tensor:
    """Tiles of 128 x 4 scales, one after the other, each of 32 rows of 4 x 4."""
    of_row = row // TILE * tiles * 512 + row % 32 * 16 + row % TILE // 32 * 4
    return of_row + column // 4 * 512 + column % 4


def unswizzled(scale: Tensor, data: Tensor, offsets: Tensor | None) -> Tensor:
    """The scales along the rows of data, whose rows may be in groups.

    Gathers by index: a slice of the padded matrix would compare its size with the number of rows,
    which torch.export may not know.
    """
    *leading, columns = data.shape
    row = torch.arange(prod(leading), device=scale.device)
    if offsets is not None:
        groups = groups_of(offsets, prod(leading), 32)
        row = groups.first_tile * TILE + groups.row
    column = torch.arange(columns // 32, device=scale.device)
    return scale.flatten()[_swizzled_place(row.view(*leading, 1), column, scale.shape[1] // 16)]


def of_grouped_columns(
    scale: Tensor, data: Tensor, offsets: Tensor, scaling: str, is_swizzled: bool
) -> Tensor:
    """A scale for each number of data, whose rows are columns that are cut into groups."""
    block = BLOCKS.get(scaling)
    groups = groups_of(offsets, data.shape[1], block)
    of_group = 0 if block is None else groups.row // block
    if not is_swizzled:
        return scale[:, groups.first_block + of_group]
    row = torch.arange(data.shape[0], device=scale.device).unsqueeze(1)
    first = groups.first_tile * (scale.shape[0] // 32 * 512)
    return scale.flatten()[first + _swizzled_place(row, of_group, groups.tiles)]


def unpacked(scale: Tensor, blocks: int) -> Tensor:
    """The powers of two whose exponents are the bytes of ``scale``."""
    shifts = torch.arange(0, 32, 8, device=scale.device)
    exponents = ((scale.unsqueeze(-1) >> shifts) & 255).flatten(-2)[..., :blocks]
    powers = (exponents << 23).to(torch.int32).view(torch.float32)
    return powers.masked_fill(exponents == 255, torch.nan)
