"""Every recipe in every mode of PyTorch: gradients, torch.compile, export, and shapes without data.
test_autograd.py has the gradients themselves."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.library import opcheck
from torch.utils._pytree import tree_leaves

from gelu_kernels import functional
from tests.calls import AsModule
from tests.cases import each
from tests.oracles.quantized_oracle import Recipe
from tests.quantized.checks import same
from tests.quantized.passes import FLOAT8, PASSES, RECIPES, Inputs, inputs_of, ops
from tests.quantized.test_autograd import equal, gradients

ENDS = {"no groups": None, "groups": [0, 1, 130, 256]}
CLAMPED = {"limit": 1.5, "up_offset": 0.75}


def offsets_of(groups: str) -> Tensor | None:
    ends = ENDS[groups]
    return None if ends is None else torch.tensor(ends, dtype=torch.int32)


class Consumer(torch.autograd.Function):
    """A user's function, such as a linear layer by scaled_mm."""

    @staticmethod
    def forward(ctx: object, data: Tensor) -> Tensor:
        return data.float()

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        return grad


Function = Callable[..., object]
FUNCTIONS: dict[str, tuple[Function, Function]] = {
    "biased gate": (
        lambda t, **k: functional.quantized_gate(t.x, t.bias, **k),
        lambda t: functional.gate(t.x, t.bias),
    ),
    "clamped GLU": (
        lambda t, **k: functional.quantized_glu(t.x, t.up, gate="silu", **CLAMPED, **k),
        lambda t: functional.glu(t.x, t.up, gate="silu", **CLAMPED),
    ),
    "weighted GLU": (
        lambda t, **k: functional.quantized_glu(t.x, t.up, gate="silu", weight=t.weight, **k),
        lambda t: functional.glu(t.x, t.up, gate="silu", weight=t.weight),
    ),
    "weighted, clamped GLU of halves": (
        lambda t, **k: functional.quantized_glu(
            t.halves, gate="normal", weight=t.weight, **CLAMPED, **k
        ),
        lambda t: functional.glu(t.halves, gate="normal", weight=t.weight, **CLAMPED),
    ),
}


@each(recipe=RECIPES, name=FUNCTIONS, groups=ENDS)
def test_straight_through(recipe: Recipe, name: str, groups: str) -> None:
    """The gradients of the unquantised function, bit for bit, of which data along columns pass
    theirs on transposed."""
    quantise, plain = FUNCTIONS[name]
    inputs = inputs_of(torch.float32, 256, 128, lambda *s: torch.randn(s))
    inputs = Inputs(*(t.requires_grad_() for t in inputs))
    wrt = list(inputs[1:])
    options = recipe._asdict() | {"along": "both", "offsets": offsets_of(groups)}
    data = [Consumer.apply(q.data) for q in quantise(inputs, **options)]
    dy = [torch.randn_like(t) for t in data]
    expected = gradients(plain(inputs), wrt, dy[0] + dy[1].t())
    assert equal(gradients(data, wrt, dy), expected)
    assert sum(gradient is not None for gradient in expected) >= 2


def results(inputs: Inputs, offsets: Tensor | None, **options: object) -> list[Tensor]:
    """Of a forward and a backward function."""
    o = options | {"along": "both", "offsets": offsets}
    with torch.no_grad():
        forward = functional.quantized_glu(
            inputs.x, inputs.up, gate="silu", weight=inputs.weight, **CLAMPED, **o
        )
        backward = functional.quantized_glu_backward(
            inputs.dy, inputs.halves, gate="silu", weight=inputs.weight, **o
        )
    return tree_leaves((forward, backward))


def is_rare(recipe: Recipe, groups: str) -> bool:
    often = RECIPES[0], RECIPES[6], RECIPES[-1]  # of each scaling, packed and swizzled
    return recipe not in often or groups != "groups"


@each(is_rare, recipe=RECIPES, groups=ENDS)
def test_compiled(recipe: Recipe, groups: str) -> None:
    """In one graph, with sizes that change."""
    torch.compiler.reset()
    compiled = torch.compile(results, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (256, 384):
        inputs = inputs_of(torch.bfloat16, rows, 128)
        arguments = inputs, offsets_of(groups)
        expected = results(*arguments, **recipe._asdict())
        found = compiled(*arguments, **recipe._asdict())
        assert len(found) == len(expected) and all(map(same, found, expected))


@each(is_rare, recipe=RECIPES, groups=ENDS)
def test_exported(recipe: Recipe, groups: str) -> None:
    """With any number of rows, and with other ends."""
    options = recipe._asdict() | {"along": "both"}

    def forward(x: Tensor, weight: Tensor, *offsets: Tensor) -> list[Tensor]:
        o = options | ({"offsets": offsets[0]} if offsets else {})
        return tree_leaves(functional.quantized_swiglu(x, weight=weight, **o))

    given = [] if ENDS[groups] is None else [offsets_of(groups)]
    rows = torch.export.Dim("blocks", max=1024) * 128
    arguments = torch.randn(256, 256), torch.randn(256), *given
    shapes = {0: rows}, {0: rows}, *({} for _ in given)
    program = torch.export.export(AsModule(forward), arguments, dynamic_shapes=(shapes,))
    ends = [torch.tensor([3, 3, 300, 384], dtype=torch.int32) for _ in given]
    arguments = torch.randn(384, 256), torch.randn(384), *ends
    found, expected = program.module()(*arguments), forward(*arguments)
    assert len(found) == len(expected) and all(map(same, found, expected))


@each(recipe=RECIPES, along=["row", "column", "both"], groups=ENDS)
def test_meta(recipe: Recipe, along: str, groups: str) -> None:
    """Shapes, dtypes and strides without data are those of real results."""
    inputs, offsets = inputs_of(torch.bfloat16, 256, 128), offsets_of(groups)
    there = None if offsets is None else offsets.to("meta")
    for of in PASSES.values():
        options = "normal", FLOAT8[1], recipe, along
        real = of.quantised(inputs, *options, offsets)
        meta = of.quantised(inputs.to("meta"), *options, there)
        for a, b in zip(real, meta, strict=True):
            assert b.device.type == "meta"
            assert (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)


def test_opcheck() -> None:
    """Of each core operator, with groups."""
    offsets, checked = torch.tensor([3, 128], dtype=torch.int32), set()
    for k, of in enumerate(PASSES.values()):
        recipe = RECIPES[k % len(RECIPES)]
        inputs = inputs_of(torch.float32, 128, 128, lambda *s: torch.randn(s))
        op, arguments = of.call(inputs, "normal", FLOAT8[0], recipe, "both", offsets)
        opcheck(getattr(ops, op).default, arguments)
        checked.add(op)
    given = torch.tensor(0.5), None, "normal", FLOAT8[0], "TensorWise", "row", "amax", "NO_SWIZZLE"
    opcheck(ops.quantized_gate_forward.default, (inputs.x, None, *given, False))
    assert len(checked) == 8
