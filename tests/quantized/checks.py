"""Whether quantised results are those of the specifications."""

from collections import Counter
from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from tests import bits
from tests.oracles import quantized_oracle as oracle
from tests.oracles.quantized_oracle import Ends, Recipe
from tests.quantized.passes import Inputs, Pass


def same(a: Tensor, b: Tensor) -> bool:
    """In dtype and bits."""
    return a.dtype == b.dtype and bits.same(a, b)


def room_for(rows: int, recipe: Recipe, ends: Ends, block: int) -> int:
    """The most blocks along a column that so many rows in groups can have."""
    groups = 1 if ends is None else len(ends)
    return groups if recipe.scaling == "RowWise" else (rows + (block - 1) * groups) // block


def shape_of_scales(rows: int, columns: int, recipe: Recipe, along: str, ends: Ends) -> tuple:
    """Of a matrix with so many rows and columns."""
    block = oracle.BLOCKS.get(recipe.scaling, 1)
    if recipe.is_swizzled:
        tiles = room_for(rows, recipe, ends, 128), -(-columns // 128)
        down, right = tiles if along == "row" else tiles[::-1]
        return 32 * down, 16 * right
    if along == "row":
        lines, blocks = rows, 1 if recipe.scaling == "RowWise" else columns // block
    else:
        lines, blocks = columns, room_for(rows, recipe, ends, block)
    return lines, -(-blocks // 4) if recipe.packed else blocks


def strides_of_scales(shape: tuple[int, int], recipe: Recipe) -> tuple[int, int]:
    """As scaled_mm and DeepGEMM take them: floats and packed words lie column by column."""
    lines, blocks = shape
    if recipe.scaling == "BlockWise1x32":
        return blocks, 1
    return 1, -(-lines // 4) * 4 if recipe.packed else lines


def has_strides(t: Tensor, strides: tuple[int, int]) -> bool:
    """But for dimensions of one, and empty tensors."""
    return not t.numel() or all(
        n == 1 or a == b for n, a, b in zip(t.shape, t.stride(), strides, strict=True)
    )


def expected_scales(of: oracle.Expected, recipe: Recipe, along: str, ends: Ends) -> Tensor:
    if not recipe.is_swizzled:
        return oracle.stored(of.scales, recipe)
    if along == "row":
        return oracle.swizzled_rows(of.scales, ends)
    return oracle.swizzled_columns(of.scales, ends)


def specified(found: Sequence[Tensor], recipe: Recipe, ends: Sequence[int]) -> list[Tensor]:
    """Of the four tensors of a matrix: what belongs to the rows of groups."""
    data, scales, column_data, column_scales = found
    end = ends[-1]
    blocks = len(oracle.blocks_along(end, recipe.scaling, ends))
    tiles = sum(-(-(j - i) // 128) for i, j in zip([0, *ends], ends, strict=False))
    parts = []
    if data.numel():
        size = tiles * 512 * -(-data.shape[-1] // 128)
        parts += [data[:end], scales.flatten()[:size] if recipe.is_swizzled else scales[:end]]
    if column_data.numel():
        size = tiles * 512 * -(-len(column_data) // 128)
        used = -(-blocks // 4) if recipe.packed else blocks
        of_columns = column_scales[:, :used]
        parts += [column_data[:, :end]]
        parts += [column_scales.flatten()[:size] if recipe.is_swizzled else of_columns]
    return parts


class Check:
    """Counts what it compares."""

    def __init__(self) -> None:
        self.cells: set[tuple] = set()
        self.blocks: Counter = Counter()

    def direction(
        self,
        results: tuple[Tensor, Tensor],
        y: Tensor,
        dtype: torch.dtype,
        recipe: Recipe,
        along: str,
        ends: Ends = None,
    ) -> None:
        """Data and scales along the rows, or the columns, of the matrix y."""
        data, scales = results
        shape = shape_of_scales(*y.shape, recipe, along, ends)
        assert data.dtype == dtype and data.is_contiguous()
        assert scales.shape == shape, (scales.shape, shape)
        assert has_strides(scales, strides_of_scales(shape, recipe)), scales.stride()
        specified = y if ends is None else y[: ends[-1]]
        of = specified if along == "row" else specified.t()
        expected = oracle.quantised(
            of, dtype, recipe.scaling, recipe.mode, ends if along == "column" else None
        )
        assert data.shape == (y.shape if along == "row" else y.t().shape)
        own = data[: len(specified)] if along == "row" else data[:, : len(specified)]
        codes = oracle.bytes_of(expected.numbers, dtype)
        differing = (own.view(torch.uint8) != codes).count_nonzero()
        assert not differing, f"{differing} of {codes.numel()} numbers differ"
        wanted = expected_scales(expected, recipe, along, ends)
        self.scales(scales, wanted, recipe.mode == "amax", len(specified) < len(y))
        self.blocks[recipe.scaling, along] += expected.scales.numel()

    def scales(self, scales: Tensor, expected: Tensor, any_nan: bool, has_rest: bool) -> None:
        """The rest is zero, unless there are rows in no group."""
        if scales.dtype == torch.float8_e8m0fnu:
            scales = scales.view(torch.uint8)
        if expected.dim() == 1:  # swizzled
            scales = scales.flatten()
        part = scales[tuple(slice(n) for n in expected.shape)]
        assert part.dtype == expected.dtype and part.shape == expected.shape
        differing = (bits.patterns(part) != bits.patterns(expected)).count_nonzero()
        if any_nan:
            differing = bits.differing(part, expected)
        assert not differing, f"{differing} of {expected.numel()} scales differ"
        if not has_rest:
            assert scales.count_nonzero() == part.count_nonzero()

    def results(
        self,
        found: tuple[Tensor, ...],
        plain: tuple[Tensor, ...],
        dtype: torch.dtype,
        recipe: Recipe,
        along: str = "both",
        ends: Ends = None,
    ) -> None:
        """Four tensors of each matrix, then sums."""
        count = (len(found) - len(plain)) // 3
        for k in range(count):
            directions = {"row": found[4 * k :][:2], "column": found[4 * k + 2 :][:2]}
            for name, own in directions.items():
                if along in (name, "both"):
                    y = plain[k].flatten(0, -2)
                    self.direction(own, y, dtype, recipe, name, ends)
                else:
                    assert not any(t.numel() for t in own)
        assert all(map(same, found[4 * count :], plain[count:]))

    def call(
        self,
        of: Pass,
        inputs: Inputs,
        gate: str,
        dtype: torch.dtype,
        recipe: Recipe,
        ends: Ends = None,
    ) -> None:
        """Along both directions; and each alone has the same bits."""
        offsets = None if ends is None else torch.tensor(ends, dtype=torch.int32)
        both = of.quantised(inputs, gate, dtype, recipe, "both", offsets)
        self.results(both, of.plain(inputs, gate), dtype, recipe, "both", ends)
        self.cells.add((of, gate, inputs.x.dtype, dtype, recipe, ends and tuple(ends)))
        covered = prod(inputs.x.shape[:-1]) if ends is None else ends[-1]
        if covered < prod(inputs.x.shape[:-1]):
            return  # what no group holds may differ
        sums = len(both) // 4 * 4
        for along in ("row", "column"):
            alone = of.quantised(inputs, gate, dtype, recipe, along, offsets)
            for k, t in enumerate(alone):
                is_wanted = k >= sums or (k % 4 >= 2) == (along == "column")
                assert same(t, both[k]) if is_wanted else t.numel() == 0
