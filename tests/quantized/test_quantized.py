"""Gates and GLUs in eight bits: the unquantised operators' results, in the numbers and scales of
the specifications. test_numbers.py has more numbers, test_groups.py groups of rows,
test_functions.py the functions that users call."""

from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from gelu_kernels import functional
from tests.calls import Shape
from tests.cases import each
from tests.layouts import LAYOUTS
from tests.oracles.quantized_oracle import Recipe
from tests.quantized.checks import Check, same
from tests.quantized.passes import (
    DTYPES,
    FLOAT8,
    PASSES,
    RECIPES,
    SWIZZLE,
    Inputs,
    inputs_of,
    spread,
)

SCALE = 0.0123


def is_rare(dtype: torch.dtype, float8: torch.dtype, **_: object) -> bool:
    return (dtype, float8) not in zip(DTYPES, FLOAT8, strict=True)


@each(is_rare, name=PASSES, recipe=RECIPES, dtype=DTYPES, float8=FLOAT8)
def test_passes(name: str, recipe: Recipe, dtype: torch.dtype, float8: torch.dtype) -> None:
    """Along both directions, and along each."""
    k = list(PASSES).index(name) + RECIPES.index(recipe)
    inputs = inputs_of(dtype, *((256, 128) if k % 2 else (128, 384)))
    Check().call(PASSES[name], inputs, "laplace", float8, recipe)


@each(name=PASSES, recipe=[Recipe("RowWise"), *RECIPES[-4:]], dtype=DTYPES)
def test_sizes(name: str, recipe: Recipe, dtype: torch.dtype) -> None:
    """That do not divide into blocks of 128, of a tensor of three dimensions."""
    inputs = inputs_of(dtype, 160, 288, spread)
    of_3 = [t.view(5, 32, -1) for t in inputs[:3]]
    inputs = Inputs(*of_3, inputs.bias, inputs.weight.view(5, 32))
    found = PASSES[name].quantised(inputs, "normal", FLOAT8[0], recipe, "both")
    plain = PASSES[name].plain(inputs, "normal")
    data, scales = found[:2]
    assert data.shape == plain[0].shape
    if not recipe.is_swizzled:
        assert scales.shape[:-1] == plain[0].shape[:-1]
    count = (len(found) - len(plain)) // 3
    rows = [t.flatten(0, -2) if t.dim() == 3 else t for t in found[: 4 * count]]
    Check().results((*rows, *found[4 * count :]), plain, FLOAT8[0], recipe)


@each(name=["gate", "GLU backward"], recipe=RECIPES, rows=[1, 3, 33, 130], ends=[None, 0, 1])
def test_any_number_of_rows(name: str, recipe: Recipe, rows: int, ends: int | None) -> None:
    """Along rows, with groups and without."""
    inputs, groups = inputs_of(torch.bfloat16, rows, 640), None if ends is None else [ends, rows]
    offsets = None if groups is None else torch.tensor(groups, dtype=torch.int32)
    found = PASSES[name].quantised(inputs, "normal", FLOAT8[0], recipe, "row", offsets)
    plain = PASSES[name].plain(inputs, "normal")
    Check().results(found, plain, FLOAT8[0], recipe, "row", groups)


@each(recipe=RECIPES, layout=LAYOUTS)
def test_layouts(recipe: Recipe, layout: str) -> None:
    """Of all inputs."""

    def placed(*shape: int) -> Tensor:
        return LAYOUTS[layout](lambda *s: spread(*s).bfloat16(), shape)

    inputs = Inputs(*(placed(128, 256) for _ in range(3)), placed(256), placed(128))
    contiguous = Inputs(*(t.clone(memory_format=torch.contiguous_format) for t in inputs))
    for name in ("weighted GLU", "backward with dbias", "GLU backward with dweight"):
        found, expected = (
            PASSES[name].quantised(i, "normal", FLOAT8[0], recipe, "both")
            for i in (inputs, contiguous)
        )
        assert all(map(same, found, expected)), name


@each(recipe=RECIPES, shape=[(0, 128), (128, 0), (0, 0)], ends=[None, [0, 0]])
def test_empty(recipe: Recipe, shape: Shape, ends: list[int] | None) -> None:
    inputs = inputs_of(torch.bfloat16, *shape, make=lambda *s: torch.randn(s))
    for of in PASSES.values():
        offsets = None if ends is None else torch.tensor(ends, dtype=torch.int32)
        results = of.quantised(inputs, "normal", FLOAT8[0], recipe, "both", offsets)
        plain = of.plain(inputs, "normal")
        Check().results(results, plain, FLOAT8[0], recipe, "both", ends)


def test_amax_of_nothing() -> None:
    for shape in ((0, 128), (128, 0)):
        results = functional.quantized_gate(
            torch.empty(shape), scaling="TensorWise", scale=torch.tensor(SCALE)
        )
        assert results.data.shape == shape and results.amax == 0


def every_result(dtype: torch.dtype) -> list[Tensor]:
    """The results of each pass, by a third of the recipes, with groups and without, always from the
    same inputs."""
    torch.manual_seed(0)
    inputs = inputs_of(dtype, 384, 640, spread)
    offsets = torch.tensor([0, 100, 227, 384], dtype=torch.int32)
    results: list[Tensor] = []
    for k, of in enumerate(PASSES.values()):
        for recipe, ends in product(RECIPES[k % 3 :: 3], (None, offsets)):
            results += of.quantised(inputs, "normal", FLOAT8[0], recipe, "both", ends)
    given = {"scaling": "TensorWise", "scale": torch.tensor(SCALE), "dtype": FLOAT8[1]}
    return results + tree_leaves(functional.quantized_gate(inputs.x, inputs.bias, **given))


@each(dtype=DTYPES)
def test_the_number_of_threads_changes_nothing(
    dtype: torch.dtype, thread_count: Callable[[int], None]
) -> None:
    results = []
    for threads in (1, 2, 3, 5):
        thread_count(threads)
        results.append(every_result(dtype))
    expected, *others = results
    assert all(all(map(same, other, expected)) for other in others)


@each(dtype=DTYPES, recipe=[r for r in RECIPES if r.mode == "rceil" and not r.packed])
def test_dequantize(dtype: torch.dtype, recipe: Recipe) -> None:
    """Within half a unit of eight bits, 1/16 of a number or 2^-10 of the largest in the block."""
    x = torch.randn(96, 384).to(dtype)
    y = functional.gelu(x)
    pair = functional.quantized_gate(x, **recipe._asdict())
    results = functional.dequantize(*pair, dtype=dtype, swizzle=recipe.swizzle)
    largest = y.double().abs().amax(-1, keepdim=True)
    assert ((results - y).double().abs() <= y.double().abs() / 15.9 + largest * 2.0**-10).all()
    if recipe.swizzle == SWIZZLE:
        plain = functional.quantized_gate(x, mode=recipe.mode)
        assert torch.equal(results, functional.dequantize(*plain, dtype=dtype))
