"""How results are quantised: what a caller asks for, and what a kernel is compiled for."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

Result = tuple[Tensor, Tensor, Tensor, Tensor]  # data, scales, column_data and column_scales

BLOCKS = {"BlockWise1x32": 32, "BlockWise1x128": 128}
LEAST_SCALE = 2.0**-126  # as in csrc/gates/float8.h


@dataclass(frozen=True)
class Compiled:
    """The recipe as a kernel has it compiled in, with the size of its tiles."""

    is_e5m2: bool
    has_powers: bool  # the scales are powers of two
    block: int  # 0 where a whole row or column has a scale
    layout: str  # of the scales: "rows", "columns", "swizzled" or "packed"
    is_cast: bool  # y = x
    sum_blocks: int  # of column sums in a tile, at least 1
    rows: int
    columns: int
    columns_first: bool

    @property
    def is_mx(self) -> bool:
        return self.block == 32

    @property
    def has_exponents(self) -> bool:
        return self.layout != "columns"


class Recipe(NamedTuple):
    """The last arguments of the operators."""

    offsets: Tensor | None
    dtype: torch.dtype
    scaling: str
    along: str
    mode: str
    swizzle: str
    packed: bool

    @property
    def block(self) -> int:
        return BLOCKS.get(self.scaling, 0)

    @property
    def along_rows(self) -> bool:
        return self.along != "column"

    @property
    def along_columns(self) -> bool:
        return self.along != "row"

    @property
    def is_swizzled(self) -> bool:
        return self.swizzle == "SWIZZLE_32_4_4"

    @property
    def has_groups(self) -> bool:
        """Groups change no other result."""
        return self.offsets is not None and (self.along_columns or self.is_swizzled)

    @property
    def ends(self) -> Tensor | None:
        """Of the groups, if they change a result."""
        return None if self.offsets is None or not self.has_groups else self.offsets.contiguous()

    @property
    def layout(self) -> str:
        if self.is_swizzled:
            return "swizzled"
        if self.packed:
            return "packed"
        return "rows" if self.scaling == "BlockWise1x32" else "columns"

    def compiled(
        self,
        rows: int,
        columns: int,
        columns_first: bool,
        *,
        is_cast: bool,
        sum_blocks: int = 1,
    ) -> Compiled:
        return Compiled(
            self.dtype == torch.float8_e5m2,
            self.mode != "amax",
            self.block,
            self.layout,
            is_cast,
            sum_blocks,
            rows,
            columns,
            columns_first,
        )


def clear(recipe: Recipe, result: Result) -> None:
    """Sets scales that no kernel writes, and those of which all kernels take the maximum: ``clear``
    of csrc/ops/quantized/results.cpp."""
    data, scales, column_data, column_scales = result
    has_offsets = recipe.offsets is not None
    if recipe.scaling == "TensorWise":
        scales.zero_()
    elif recipe.scaling == "RowWise":
        if recipe.along_rows and data.numel() == 0:
            scales.fill_(LEAST_SCALE)
        if recipe.along_columns and (column_data.numel() == 0 or has_offsets):
            column_scales.fill_(LEAST_SCALE)
    else:
        has_padding = recipe.is_swizzled or recipe.packed
        if recipe.along_rows and has_padding:
            _zero_padding(recipe, data, scales, has_offsets and recipe.is_swizzled)
        if recipe.along_columns and (has_padding or has_offsets):
            _zero_padding(recipe, column_data, column_scales, has_offsets)


def _zero_padding(recipe: Recipe, numbers: Tensor, scales: Tensor, has_groups: bool) -> None:
    places = scales.numel() * (4 if recipe.packed else 1)
    if has_groups or places * recipe.block > numbers.numel():
        (scales.view(torch.uint8) if scales.itemsize == 1 else scales).zero_()
