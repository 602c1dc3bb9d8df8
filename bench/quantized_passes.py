"""The passes of ``python -m bench.quantized``: in plain PyTorch as one writes them, in float64, and
by this package."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.records import Cell
from bench.workloads import DTYPES
from gelu_kernels import functional, reference

FLOAT8, LARGEST = torch.float8_e4m3fn, 448.0
MX = ("row", "column", "both")
RECIPES = ("TensorWise", "RowWise", "BlockWise1x128", *MX)
Function = Callable[..., object]


def rounded(t: Tensor) -> Tensor:
    return t.clamp(-LARGEST, LARGEST).to(FLOAT8)


def by_floats(y: Tensor, block: int) -> tuple[Tensor, Tensor]:
    blocks = y.unflatten(-1, (-1, block))
    amax = blocks.abs().amax(-1, keepdim=True).float()
    data = rounded(blocks.float() * (LARGEST / amax)).flatten(-2)
    return data, (amax / LARGEST).squeeze(-1)


def mx(y: Tensor) -> tuple[Tensor, Tensor]:
    blocks = y.unflatten(-1, (-1, 32))
    amax = blocks.abs().amax(-1, keepdim=True).float()
    code = ((amax.view(torch.int32) >> 23) - 8).clamp(0, 254)
    inverse = ((254 - code) << 23).view(torch.float32)
    data = rounded(blocks.float() * inverse).flatten(-2)
    return data, code.to(torch.uint8).squeeze(-1)  # Inductor has no float8_e8m0fnu on a CPU


def chain(y: Tensor, recipe: str, scale: Tensor) -> tuple[Tensor, ...]:
    """As one writes it, for results that are finite and not all zero."""
    match recipe:
        case "TensorWise":
            return rounded(y.float() * (1 / scale)), y.abs().amax().float()
        case "RowWise":
            return by_floats(y, y.shape[-1])
        case "BlockWise1x128":
            return by_floats(y, 128)
        case "row":
            return mx(y)
        case "column":
            return mx(y.t().contiguous())
    return (*mx(y), *mx(y.t().contiguous()))


# Bytes for a number, but for those of a tensor or a row.
SCALES = {"BlockWise1x128": 4 / 128} | dict.fromkeys(MX, 1 / 32)


def options(recipe: str, scale: Tensor) -> dict[str, object]:
    if recipe in MX:
        return {"along": recipe}
    return {"scaling": recipe} | ({"scale": scale} if recipe == "TensorWise" else {})


@dataclass(frozen=True)
class Pass:
    """By torch, in float64, and by this package."""

    op: str
    label: str
    gate: str
    read: int  # matrices
    written: int  # results, without the directions
    results: Function  # to be quantised, of x, up and dy; and others
    exact: Function
    ours: Function
    recipes: tuple[str, ...] = RECIPES

    def cell(self, recipe: str, dtype: str, elements: int) -> Cell:
        directions = 2 if recipe == "both" else 1
        moved = self.read * DTYPES[dtype].itemsize
        moved += self.written * directions * (1 + SCALES.get(recipe, 0))
        names = f"{self.op} {recipe}", self.label, self.gate, dtype, elements
        return Cell(*names, moved=moved * elements)


def silu_gradients(x: Tensor, up: Tensor, dy: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    return [torch.ops.aten.silu_backward(dy * up, x), dy * F.silu(x)], []


def gelu_gradient(x: Tensor, up: Tensor, dy: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    dx = torch.ops.aten.gelu_backward(dy, x + up[0])
    return [dx], [dx.sum(0)]


def exact_gradients(forward: Function, count: int) -> Function:
    def gradients(x: Tensor, up: Tensor, dy: Tensor) -> list[Tensor]:
        _, vjp = torch.func.vjp(forward, x.double(), up.double())
        return [t.to(x.dtype) for t in vjp(dy.double())[:count]]

    return gradients


PASSES = {
    "gate forward": Pass(
        *("quantized_gate", "forward", "normal", 1, 1),
        lambda x, up, dy: ([F.gelu(x)], []),
        lambda x, up, dy: [reference.gelu(x)],
        lambda x, up, dy, **k: functional.quantized_gate(x, **k),
    ),
    "GLU forward": Pass(
        *("quantized_glu", "forward", "logistic", 2, 1),
        lambda x, up, dy: ([F.silu(x) * up], []),
        lambda x, up, dy: [(reference.logistic(x.double()) * up.double()).to(x.dtype)],
        lambda x, up, dy, **k: functional.quantized_swiglu(x, up, **k),
    ),
    "gate backward with a bias": Pass(
        *("quantized_bias_gate", "backward", "normal", 2, 1),
        gelu_gradient,
        exact_gradients(lambda x, up: reference.normal(x + up[0]), 1),
        lambda x, up, dy, **k: functional.quantized_gate_backward(dy, x, up[0], **k),
        MX,
    ),
    "GLU backward": Pass(
        *("quantized_glu", "backward", "logistic", 3, 2),
        silu_gradients,
        exact_gradients(lambda x, up: reference.logistic(x) * up, 2),
        lambda x, up, dy, **k: functional.quantized_glu_backward(dy, x, up, gate="logistic", **k),
        MX,
    ),
}
