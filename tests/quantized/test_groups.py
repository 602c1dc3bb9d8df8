"""Groups of rows: column blocks, and swizzled scales, begin anew in each."""

from collections.abc import Sequence

import torch
from torch import Tensor

from gelu_kernels import functional
from tests.cases import each
from tests.oracles.quantized_oracle import Recipe
from tests.quantized.checks import Check, same
from tests.quantized.passes import (
    DTYPES,
    FLOAT8,
    PASSES,
    RECIPES,
    inputs_of,
)

ROWS = 272  # a multiple of 16 alone
GROUPS: dict[str, list[int]] = {
    "one": [272],
    "empty, of 1 row, odd, and of exactly 128": [0, 1, 130, 258, 258, 272],
    "empty ones at both ends": [0, 0, 128, 128, 256, 272, 272, 272],
    "all rows in one of several": [0, 272, 272],
    "many": [*range(0, 272, 3), 272],
    "one row each": [*range(1, 273)],
    "one more than a block": [33, 66, 195],
    "rows left over": [5, 5, 100],
    "only rows left over": [0, 0],
    "one row in all": [0, 1],
}


def offsets_of(ends: Sequence[int]) -> Tensor:
    return torch.tensor(ends, dtype=torch.int32)


def is_rare(name: str, groups: str, **_: object) -> bool:
    return name != "gate" and list(GROUPS).index(groups) != 1


@each(is_rare, name=PASSES, recipe=RECIPES, groups=GROUPS)
def test_groups(name: str, recipe: Recipe, groups: str) -> None:
    k = RECIPES.index(recipe) + list(GROUPS).index(groups)
    inputs = inputs_of(DTYPES[k % 2], ROWS, 128 if k % 3 else 256)
    Check().call(PASSES[name], inputs, "normal", FLOAT8[k // 2 % 2], recipe, GROUPS[groups])


@each(recipe=RECIPES)
def test_random_groups(recipe: Recipe) -> None:
    for seed in range(20):
        torch.default_generator.manual_seed(seed)
        rows = 16 * int(torch.randint(1, 40, ()))
        count = int(torch.randint(1, 9, ()))
        ends = torch.randint(0, rows + 1, (count,)).sort().values.tolist()
        inputs = inputs_of(torch.bfloat16, rows, 256)
        Check().call(PASSES["gate"], inputs, "normal", FLOAT8[0], recipe, ends)


@each(recipe=RECIPES)
def test_a_group_is_as_if_it_were_alone(recipe: Recipe) -> None:
    """Where groups are whole blocks, without the oracle: its columns and its swizzled scales."""
    ends = [128, 384, 384, 512]
    x = inputs_of(torch.bfloat16, 512, 256).x
    options = recipe._asdict() | {"along": "both"}
    row, column = functional.quantized_gate(x, offsets=offsets_of(ends), **options)
    begin, first, tiles = 0, 0, 0
    for end in ends:
        if begin == end:
            first += recipe.scaling == "RowWise"
            continue
        own_row, own_column = functional.quantized_gate(x[begin:end], **options)
        assert same(row.data[begin:end], own_row.data)
        assert same(column.data[:, begin:end], own_column.data)
        count = own_column.scale.shape[1]
        if recipe.is_swizzled:
            for scale, own in ((row.scale, own_row.scale), (column.scale, own_column.scale)):
                place = tiles * 512 * 2  # of two tiles beside each other, or above
                assert same(scale.flatten()[place:][: own.numel()], own.flatten())
            tiles += (end - begin) // 128
        elif not recipe.packed:
            assert same(row.scale[begin:end], own_row.scale)
            assert same(column.scale[:, first : first + count], own_column.scale)
        first, begin = first + count, end


@each(recipe=RECIPES)
def test_groups_change_nothing_along_rows(recipe: Recipe) -> None:
    x = inputs_of(torch.bfloat16, 272, 256).x
    if recipe.is_swizzled:
        return
    expected = functional.quantized_gate(x, **recipe._asdict())
    found = functional.quantized_gate(x, offsets=offsets_of([0, 7, 272]), **recipe._asdict())
    assert same(found.data, expected.data) and same(found.scale, expected.scale)


@each(dtype=DTYPES)
def test_tensor_wise(dtype: torch.dtype) -> None:
    """One scale for all groups."""
    x = inputs_of(dtype, 33, 48, lambda *s: torch.randn(s)).x
    given = {"scaling": "TensorWise", "scale": torch.tensor(0.01)}
    found = functional.quantized_gate(x, offsets=offsets_of([3, 33]), **given)
    assert all(map(same, found, functional.quantized_gate(x, **given)))


@each(recipe=RECIPES)
def test_offsets_of_any_layout(recipe: Recipe) -> None:
    x = inputs_of(torch.bfloat16, 272, 128).x
    ends = offsets_of([1, 130, 272])
    apart = torch.stack([ends, -ends], 1)[:, 0]
    found, expected = (
        functional.quantized_gate(x, offsets=o, along="both", **recipe._asdict())
        for o in (apart, ends)
    )
    for a, b in zip(found, expected, strict=True):
        assert same(a.data, b.data) and same(a.scale, b.scale)


@each(recipe=RECIPES)
def test_nothing_outside_is_read(recipe: Recipe) -> None:
    """Rows of NaN before and after, and those left over, change no result of a group."""
    inside = inputs_of(torch.bfloat16, 272, 128, lambda *s: torch.randn(s)).x
    wide = torch.full((400, 160), torch.nan, dtype=torch.bfloat16)
    wide[64 : 64 + 100, 16:144] = inside[:100]
    x = wide[64 : 64 + 272, 16:144]
    ends = [40, 100]
    found, expected = (
        functional.quantized_gate(t, offsets=offsets_of(ends), along="column", **recipe._asdict())
        for t in (x, inside)
    )
    assert same(found.data[:, :100], expected.data[:, :100])
    if recipe.is_swizzled:  # a tile for each of the groups
        assert same(found.scale.flatten()[:1024], expected.scale.flatten()[:1024])
    else:
        used = {"RowWise": 2, "BlockWise1x128": 2, "BlockWise1x32": 4}[recipe.scaling]
        used = -(-used // 4) if recipe.packed else used
        assert same(found.scale[:, :used], expected.scale[:, :used])
