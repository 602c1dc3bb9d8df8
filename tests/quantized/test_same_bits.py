"""The other backends quantise to the CPU's bits, which test_quantized.py holds to the
specifications."""

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

from tests import bits
from tests.backends.same_bits import every, needs_triton_ptx, on_backends
from tests.calls import GATES
from tests.cases import each
from tests.devices import BACKENDS, kernels_for
from tests.layouts import LAYOUTS
from tests.oracles.quantized_oracle import Recipe
from tests.quantized.checks import specified
from tests.quantized.passes import (
    DTYPES,
    FLOAT8,
    PASSES,
    RECIPES,
    SWIZZLE,
    Inputs,
    Pass,
    inputs_of,
    ops,
)

Results = tuple[Tensor, ...]
ALONG = ("row", "column", "both")
MX = Recipe("BlockWise1x32", "rceil", SWIZZLE)
OF_128 = Recipe("BlockWise1x128", "amax")

every_backend = pytest.mark.parametrize("backend", BACKENDS)


def assert_same(results: Results, expected: Results) -> None:
    for result, e in zip(results, expected, strict=True):
        assert (result.dtype, result.stride()) == (e.dtype, e.stride())
        assert_same_bits(result, e)


def assert_same_bits(result: Tensor, expected: Tensor) -> None:
    if expected.dtype.itemsize == 1 or not expected.is_floating_point():
        assert bits.same(result.cpu(), expected)
    else:
        assert bits.differing(result.cpu(), expected) == 0


def check(
    backend: str,
    of: Pass,
    inputs: Inputs,
    gate: str,
    float8: torch.dtype,
    recipe: Recipe,
    along: str = "both",
    ends: list[int] | None = None,
) -> None:
    offsets = None if ends is None else torch.tensor(ends, dtype=torch.int32)
    options = gate, float8, recipe, along
    expected = of.quantised(inputs, *options, offsets)
    with kernels_for(backend) as device:
        there = None if offsets is None else offsets.to(device)
        results = of.quantised(inputs.to(device), *options, there)
    if ends is None or ends[-1] == inputs.x.shape[0]:
        assert_same(results, expected)
        return
    sums = len(expected) // 4 * 4
    for k in range(0, sums, 4):
        parts = (specified(t[k : k + 4], recipe, ends) for t in (results, expected))
        for result, e in zip(*parts, strict=True):
            assert_same_bits(result, e)
    assert_same(results[sums:], expected[sums:])


def is_rare(gate: str, dtype: torch.dtype = torch.bfloat16, **_: object) -> bool:
    return gate != GATES[0] or dtype != torch.bfloat16


@every_backend
@each(is_rare, gate=GATES, dtype=DTYPES, name=PASSES)
def test_passes(backend: str, gate: str, dtype: torch.dtype, name: str) -> None:
    """In tiles with a ragged end."""
    torch.manual_seed(1)
    check(backend, PASSES[name], inputs_of(dtype, 96, 160), gate, FLOAT8[0], MX)


def with_each_recipe(triton: Callable[[Recipe], bool]) -> pytest.MarkDecorator:
    """Triton, which compiles a kernel for a second or two, with few of them in `make test`."""
    cases = [(recipe,) for recipe in RECIPES]
    names = [f"{r.scaling}-{r.mode}{'-packed' * r.packed}-{r.swizzle}" for r in RECIPES]
    parameters = on_backends(cases, every, triton)
    ids = [f"{p.values[0]}-{names[RECIPES.index(p.values[1])]}" for p in parameters]
    return pytest.mark.parametrize("backend, recipe", parameters, ids=ids)


FEW_RECIPES = [Recipe("RowWise"), OF_128, Recipe("BlockWise1x128", "floor", packed=True)]


def seldom(name: str, gate: str, dtype: torch.dtype, along: str, **_: object) -> bool:
    is_first = name in ("gate", "halves backward") and along == "both"
    return not is_first or is_rare(gate, dtype)


@with_each_recipe(FEW_RECIPES.__contains__)
@each(seldom, name=PASSES, gate=GATES[::3], dtype=DTYPES, along=ALONG)
def test_recipes(
    backend: str, recipe: Recipe, name: str, gate: str, dtype: torch.dtype, along: str
) -> None:
    torch.manual_seed(1)
    inputs = inputs_of(dtype, 128, 256)
    check(backend, PASSES[name], inputs, gate, FLOAT8[0], recipe, along)


@pytest.mark.slow
@with_each_recipe(every)
@each(name=["gate", "halves backward"], float8=FLOAT8, shape=[(512, 128), (2176, 128), (128, 1280)])
def test_more_tiles(
    backend: str, recipe: Recipe, name: str, float8: torch.dtype, shape: tuple[int, int]
) -> None:
    """Of rows and of columns."""
    inputs = inputs_of(torch.bfloat16, *shape)
    check(backend, PASSES[name], inputs, "normal", float8, recipe)


GROUPS = {
    "of several sizes": [0, 1, 66, 194, 194, 208],
    "rows left over": [37, 37, 100],
    "one row each": [*range(1, 33)],
    "one": [208],
    "none": [0],
}


def is_rare_group(name: str, along: str, groups: str) -> bool:
    return (name, along) != ("GLU", "both") or groups not in list(GROUPS)[:2]


@with_each_recipe(FEW_RECIPES[1:].__contains__)
@each(is_rare_group, name=PASSES, along=ALONG, groups=GROUPS)
def test_groups(backend: str, recipe: Recipe, name: str, along: str, groups: str) -> None:
    torch.manual_seed(1)
    inputs = inputs_of(torch.bfloat16, 208, 128)
    check(backend, PASSES[name], inputs, "normal", FLOAT8[0], recipe, along, GROUPS[groups])


@pytest.mark.slow
@with_each_recipe(every)
@each(dtype=DTYPES)
def test_random_groups(backend: str, recipe: Recipe, dtype: torch.dtype) -> None:
    for seed in range(20):
        torch.manual_seed(seed)
        rows = 16 * int(torch.randint(1, 40, ()))
        count = int(torch.randint(1, 9, ()))
        ends = torch.randint(0, rows + 1, (count,)).sort().values.tolist()
        inputs = inputs_of(dtype, rows, 128)
        check(backend, PASSES["gate"], inputs, "normal", FLOAT8[0], recipe, "both", ends)


@every_backend
@each(lambda recipe: recipe not in (OF_128, MX), recipe=RECIPES)
def test_ends_that_are_wrong(backend: str, recipe: Recipe) -> None:
    """On a GPU, one that is below the one before counts as that one, and one beyond the rows as all
    of them."""
    inputs = inputs_of(torch.bfloat16, 208, 128)
    arguments = inputs, "normal", FLOAT8[0], recipe, "both"
    right = torch.tensor([0, 40, 40, 40, 208, 208], dtype=torch.int32)
    expected = PASSES["gate"].quantised(*arguments, right)
    wrong = torch.tensor([-5, 40, 7, -(2**31), 2**31 - 1, 300], dtype=torch.int32)
    with kernels_for(backend) as device:
        moved = inputs.to(device), *arguments[1:]
        results = PASSES["gate"].quantised(*moved, wrong.to(device))
    assert_same(results, expected)


@every_backend
@each(is_rare, gate=GATES, name=["gate", "backward"])
def test_any_bfloat16(backend: str, gate: str, name: str) -> None:
    """As x, and as dy, in a random order."""
    every_number = bits.any_numbers(torch.bfloat16)
    mixed = every_number.flatten()[torch.randperm(every_number.numel())].view(-1, 256)
    ordinary = torch.randn_like(mixed)
    for x, dy in ((mixed, ordinary), (ordinary, mixed)):
        inputs = Inputs(dy, x, ordinary, ordinary[0], ordinary[:, 0])
        check(backend, PASSES[name], inputs, gate, FLOAT8[0], MX._replace(mode="floor"))


@every_backend
@each(lambda recipe, dtype: recipe != OF_128, recipe=RECIPES, dtype=DTYPES)
def test_any_bits(backend: str, recipe: Recipe, dtype: torch.dtype) -> None:
    """As dy, where g' = 1: the numbers that are quantised."""
    torch.manual_seed(1)
    dy = bits.any_numbers(dtype).flatten()
    dy = dy[torch.randperm(dy.numel())].view(-1, 256)[:128]
    x = torch.full_like(dy, 100)
    inputs = Inputs(dy, x, x, x[0], x[:, 0])
    check(backend, PASSES["backward"], inputs, "normal", FLOAT8[0], recipe)


# Rows whose sums have blocks of 32, 256, 64 and 128. But for 288, MX ends with a shorter block.
SUM_ROWS = [288, 8352, 2208, 4256]


@pytest.mark.parametrize(
    "backend, along",
    on_backends([("row",), ("column",), ("both",)], every, "both".__eq__),
)
@each(
    lambda recipe, dtype, rows: (
        rows not in SUM_ROWS[:2] or (recipe, dtype) == (OF_128, torch.bfloat16)
    ),
    recipe=[MX, OF_128],
    dtype=DTYPES,
    rows=SUM_ROWS,
)
def test_sums(backend: str, along: str, recipe: Recipe, dtype: torch.dtype, rows: int) -> None:
    """Sums that depend on their order, over several blocks of rows."""
    torch.manual_seed(1)
    shape = (rows, 160) if recipe == MX else (rows // 128 * 128, 128)
    inputs = inputs_of(dtype, *shape, lambda *s: 3 * torch.randn(s))
    check(backend, PASSES["backward with dbias"], inputs, GATES[0], FLOAT8[0], recipe, along)


@every_backend
def test_amax_is_of_the_matrix_alone(backend: str) -> None:
    """And not of the bias in a tile's rows beyond the matrix."""
    bias = torch.linspace(1, 9, 384)
    tensors = -bias.expand(33, -1), bias, torch.tensor(1.0)
    assert_forward(backend, tensors, Recipe("TensorWise"), FLOAT8[0])


def assert_forward(backend: str, tensors: tuple, recipe: Recipe, float8: torch.dtype) -> None:
    """Of x, a bias and a scale, or None: along the rows."""
    scaling, *rest = recipe

    def forward(x: Tensor, bias: Tensor | None, scale: Tensor | None) -> Results:
        options = None, GATES[0], float8, scaling, "row", *rest
        return ops.quantized_gate_forward(x, bias, scale, *options)[:2]

    expected = forward(*tensors)
    with kernels_for(backend) as device:
        results = forward(*(t if t is None else t.to(device) for t in tensors))
    assert_same(results, expected)


FIRST_OPTIONS = torch.bfloat16, FLOAT8[1]


@every_backend
@each(
    lambda name, dtype, float8, along, mode: (name, dtype, float8) != ("gate", *FIRST_OPTIONS),
    name=PASSES,
    dtype=DTYPES,
    float8=FLOAT8,
    along=ALONG,
    mode=["floor", "rceil"],
)
def test_options(
    backend: str, name: str, dtype: torch.dtype, float8: torch.dtype, along: str, mode: str
) -> None:
    recipe = Recipe("BlockWise1x32", mode, SWIZZLE if along == "both" else "NO_SWIZZLE")
    sizes = [(32, 32), (96, 1056)] if along != "row" else [(1, 32), (31, 1056)]
    for rows, columns in sizes:
        torch.manual_seed(1)
        inputs = inputs_of(dtype, rows, columns)
        check(backend, PASSES[name], inputs, GATES[0], float8, recipe, along)


@every_backend
@each(is_rare, gate=GATES, dtype=DTYPES, recipe=[Recipe("TensorWise"), Recipe("RowWise"), OF_128])
def test_float_scales(backend: str, gate: str, dtype: torch.dtype, recipe: Recipe) -> None:
    """In whole rows, and in rows that a program passes over twice."""
    for float8, (rows, columns) in zip(FLOAT8, [(33, 384), (2, 17408)], strict=True):
        torch.manual_seed(1)
        inputs = inputs_of(dtype, rows, columns)
        if recipe.scaling == "TensorWise":
            scale = torch.tensor(0.0123)
            for bias in (None, inputs.bias):
                assert_forward(backend, (inputs.x, bias, scale), recipe, float8)
        else:
            for name in ("gate", "biased gate", "GLU"):
                check(backend, PASSES[name], inputs, gate, float8, recipe, "row")


@every_backend
@each(lambda layout, recipe: recipe != MX, layout=LAYOUTS, recipe=[MX, OF_128, Recipe("RowWise")])
def test_layouts(backend: str, layout: str, recipe: Recipe) -> None:
    def make(*shape: int) -> Tensor:
        return (3 * torch.randn(shape)).bfloat16()

    torch.manual_seed(1)
    matrices = [LAYOUTS[layout](make, (128, 256)) for _ in range(3)]
    inputs = Inputs(*matrices, make(256), make(128))
    check(backend, PASSES["GLU backward"], inputs, GATES[0], FLOAT8[0], recipe)


@each(
    lambda name, recipe: (name, recipe) != ("gate", MX),
    name=["gate", "GLU backward"],
    recipe=[MX, OF_128, Recipe("RowWise", "floor")],
)
def test_triton_without_instructions_of_nvidia(name: str, recipe: Recipe) -> None:
    """And for NVIDIA GPUs before sm_89, which have no conversion to eight bits."""
    needs_triton_ptx()
    for backend, float8 in product(["triton_portable", "triton_ptx sm_80"], FLOAT8):
        torch.manual_seed(1)
        inputs = inputs_of(torch.bfloat16, 128, 128)
        check(backend, PASSES[name], inputs, GATES[0], float8, recipe)
