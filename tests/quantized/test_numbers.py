"""Numbers of every kind, quantised as the specifications have it: any bits, special values, largest
magnitudes near the steps of a scale, and a million random blocks."""

import math
from collections.abc import Callable, Iterator
from itertools import product

import pytest
import torch
from torch import Tensor

from gelu_kernels import functional
from gelu_kernels.functional import Quantized
from tests.calls import GATES
from tests.cases import each
from tests.oracles.quantized_oracle import BLOCKS, FORMATS, Recipe
from tests.quantized.checks import Check
from tests.quantized.passes import (
    DTYPES,
    FLOAT8,
    PASSES,
    RECIPES,
    Inputs,
    inputs_of,
    ops,
)


def every_bfloat16() -> Iterator[Tensor]:
    """In blocks of 32 along rows and columns: shuffled, sorted by magnitude, and shuffled among
    neighbours."""
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.bfloat16)
    by_magnitude = every[every.abs().float().argsort(stable=True)]
    mixed = by_magnitude.view(-1, 1024)[:, torch.randperm(1024)].flatten()
    for order in (every[torch.randperm(2**16)], by_magnitude, mixed):
        yield order.view(-1, 256)
        yield order.view(256, -1).t()


def any_numbers(dtype: torch.dtype) -> Iterator[Tensor]:
    """Every bfloat16, or random bits of float32: of all magnitudes, and of similar ones."""
    if dtype == torch.bfloat16:
        yield from every_bfloat16()
    else:
        integers = torch.randint(-(2**31), 2**31, (512, 1024), dtype=torch.int64).int()
        yield integers.view(torch.float32)
        yield ((integers & 0x07FFFFFF) | 0x38000000).view(torch.float32)


def straight(numbers: Tensor, **choices: object) -> Quantized | tuple[Quantized, Quantized]:
    """Any numbers, quantised: a gradient times g' = 1."""
    return functional.quantized_gate_backward(numbers, torch.full_like(numbers, 100), **choices)


def check(numbers: Tensor, float8: torch.dtype, recipe: Recipe) -> Check:
    found = ops.quantized_gate_backward(
        numbers,
        torch.full_like(numbers, 100),
        None,
        None,
        "normal",
        float8,
        recipe.scaling,
        "both",
        *recipe[1:],
    )
    counts = Check()
    counts.results(found, (numbers,), float8, recipe)
    return counts


PLAIN_RECIPES = [recipe for recipe in RECIPES if not (recipe.is_swizzled or recipe.packed)]


@each(dtype=DTYPES, float8=FLOAT8, recipe=PLAIN_RECIPES)
def test_any_numbers(dtype: torch.dtype, float8: torch.dtype, recipe: Recipe) -> None:
    for numbers in any_numbers(dtype):
        check(numbers, float8, recipe)


SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, -math.nan, 2.0**-133, -(2.0**-126), 3e38]


@each(dtype=DTYPES, float8=FLOAT8, recipe=RECIPES)
def test_special_blocks(dtype: torch.dtype, float8: torch.dtype, recipe: Recipe) -> None:
    """A block filled with a special value, one with it among ordinary numbers, and one with it
    among zeros."""
    rows = [torch.full((128,), special, dtype=dtype) for special in SPECIAL]
    rows += [torch.cat([row[:1], torch.randn(127).to(dtype)]) for row in rows]
    rows += [torch.cat([row[:1], torch.zeros(127).to(dtype)]) for row in rows[: len(SPECIAL)]]
    found = torch.stack([*rows, *[rows[2]] * (128 - len(rows))])
    for numbers in (found, found.t()):
        check(numbers, float8, recipe)


def steps(dtype: torch.dtype, float8: torch.dtype) -> Tensor:
    """Powers of two, the largest number of the format times them, and 1.75 times them, each with
    the numbers just below and above."""
    powers = torch.exp2(torch.arange(-149.0, 128.0, dtype=torch.float64))
    all_steps = torch.cat([powers, FORMATS[float8][0] * powers, 1.75 * powers])
    exact = all_steps[all_steps < 3.38e38].to(dtype)
    exact = exact[exact > 0].unique()
    integers = exact.view({2: torch.int16, 4: torch.int32}[dtype.itemsize])
    around = torch.cat([integers - 1, integers, integers + 1])
    return around.view(dtype)


@each(dtype=DTYPES, float8=FLOAT8, recipe=PLAIN_RECIPES)
def test_scales_at_their_steps(dtype: torch.dtype, float8: torch.dtype, recipe: Recipe) -> None:
    """amax at powers of two and at L 2^k, and just above and below, of every magnitude."""
    amax = steps(dtype, float8)
    amax = torch.cat([amax, amax.new_zeros(-len(amax) % 128)])
    shares = (2 * torch.rand(len(amax), 128) - 1).to(dtype)
    shares.scatter_(1, torch.randint(128, (len(amax), 1)), 1)
    block = BLOCKS.get(recipe.scaling, 128)
    shares[:, ::block] = 1  # in each block
    found = amax[:, None] * shares
    check(found, float8, recipe)
    check(found.t(), float8, recipe)


# Random blocks

SCALINGS = ("RowWise", "BlockWise1x128", "BlockWise1x32")
MANY = 1_000_000
FEW = 16_384


def of_gate(inputs: Inputs) -> Inputs:
    """Whose x and up are ordinary in most blocks, so that results are not zero or infinite."""
    ordinary = 2 * torch.randn_like(inputs.x)
    blocks = torch.rand(inputs.x.shape[0] // 16, inputs.x.shape[1] // 16) < 0.3
    is_special = blocks.repeat_interleave(16, 0).repeat_interleave(16, 1)
    return inputs._replace(x=torch.where(is_special, inputs.x, ordinary))


def shapes_of(scaling: str, blocks: int) -> list[tuple[int, int]]:
    """Matrices that together have so many blocks along their rows, and likewise their columns."""
    if scaling == "RowWise":  # of 16 numbers
        length = 16 * -(-blocks // 16)
        return [(length, 16), (16, length)]
    columns = 1024 if blocks > 1024 else 256
    return [(128, columns)] * -(-blocks * BLOCKS[scaling] // (128 * columns))


COMBINATIONS = list(product(DTYPES, FLOAT8))


def count_blocks(gate: str, scaling: str, blocks: int) -> Check:
    """In every mode, dtype and format by turns, of a gate, a GLU, and of their gradients."""
    recipes = [recipe for recipe in RECIPES if recipe.scaling == scaling]
    names = ["biased gate", "weighted GLU", "backward", "GLU backward"]
    choices = list(product(recipes, COMBINATIONS, names))
    counts = Check()
    part = -(-blocks // len(choices))
    for recipe, (dtype, float8), name in choices:
        for rows, columns in shapes_of(scaling, part):
            inputs = of_gate(inputs_of(dtype, rows, columns))
            counts.call(PASSES[name], inputs, gate, float8, recipe)
    return counts


def often_or_seldom() -> list:
    """A few blocks of one gate; many of each."""
    cases = [pytest.param(GATES[0], FEW, id="few")]
    seldom = [pytest.param(gate, MANY, id=gate, marks=pytest.mark.slow) for gate in GATES]
    return cases + seldom


@pytest.mark.parametrize("gate, blocks", often_or_seldom())
@pytest.mark.parametrize("scaling", SCALINGS)
def test_random_blocks(scaling: str, gate: str, blocks: int, record_property: Callable) -> None:
    counts = count_blocks(gate, scaling, blocks)
    record_property("cells", len(counts.cells))
    for along in ("row", "column"):
        record_property(along, counts.blocks[scaling, along])
        assert counts.blocks[scaling, along] >= blocks
