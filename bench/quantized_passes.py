"""The passes of ``python -m bench.quantized``: in plain PyTorch as one writes them, in float64, and
by this package."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.quantized_recipes import RECIPES
from bench.records import Cell
from bench.workloads import DTYPES
from gelu_kernels import functional, reference

# Of gpt-oss's experts, but for a limit that random numbers reach.
EXPERT = {"gate": "logistic_1702", "limit": 2.0, "up_offset": 1.0}
# The groups' ends, of the rows.
ENDS = (0.2, 0.45, 0.8, 1.0)
Function = Callable[..., object]


class Inputs(NamedTuple):
    x: Tensor
    up: Tensor
    dy: Tensor
    weight: Tensor  # of the rows
    offsets: Tensor  # of groups of rows


def make_inputs(shape: tuple[int, int], dtype: str, device: str) -> Inputs:
    of = {"device": device, "dtype": DTYPES[dtype]}
    ends = [int(shape[0] * end) for end in ENDS]
    return Inputs(
        *(torch.randn(shape, **of) for _ in range(3)),
        torch.rand(shape[0], **of) + 0.1,
        torch.tensor(ends, dtype=torch.int32, device=device),
    )


@dataclass(frozen=True)
class Pass:
    """By torch, in float64, and by this package."""

    op: str
    label: str
    gate: str
    read: int  # matrices
    written: int  # results, without the directions
    results: Function  # of Inputs: to be quantised; and others
    exact: Function
    ours: Function
    recipes: tuple[str, ...] = tuple(RECIPES)
    has_groups: bool = False

    def cell(self, recipe: str, dtype: str, elements: int) -> Cell:
        moved = self.read * RECIPES[recipe].reads * DTYPES[dtype].itemsize
        moved += self.written * RECIPES[recipe].written
        names = f"{self.op} {recipe}", self.label, self.gate, dtype, elements
        return Cell(*names, moved=moved * elements)


def silu_gradients(of: Inputs) -> tuple[list[Tensor], list[Tensor]]:
    return [torch.ops.aten.silu_backward(of.dy * of.up, of.x), of.dy * F.silu(of.x)], []


def gelu_gradient(of: Inputs) -> tuple[list[Tensor], list[Tensor]]:
    dx = torch.ops.aten.gelu_backward(of.dy, of.x + of.up[0])
    return [dx], [dx.sum(0)]


def expert(x: Tensor, up: Tensor, weight: Tensor) -> Tensor:
    x, up = x.clamp(max=2.0), up.clamp(-2.0, 2.0)
    return x * torch.sigmoid(1.702 * x) * (up + 1) * weight.unsqueeze(1)


def expert_gradients(of: Inputs) -> tuple[list[Tensor], list[Tensor]]:
    x, up = of.x.clamp(max=2.0), of.up.clamp(-2.0, 2.0) + 1
    f = torch.sigmoid(1.702 * x)
    weighted = of.dy * of.weight.unsqueeze(1)
    dx = weighted * up * f * (1 + 1.702 * x * (1 - f)) * (of.x <= 2.0)
    dup = weighted * x * f * (of.up.abs() <= 2.0)
    return [dx, dup], [(of.dy * x * f * up).sum(1)]


def exact_gradients(forward: Function, count: int) -> Function:
    """Of x, up and a weight."""

    def gradients(of: Inputs) -> list[Tensor]:
        _, vjp = torch.func.vjp(forward, of.x.double(), of.up.double(), of.weight.double())
        return [t.to(of.x.dtype) for t in vjp(of.dy.double())[:count]]

    return gradients


def exact(forward: Function) -> Function:
    def results(of: Inputs) -> list[Tensor]:
        y = forward(of.x.double(), of.up.double(), of.weight.double())
        return [y.to(of.x.dtype)]

    return results


def our_expert(of: Inputs, **options: object) -> object:
    return functional.quantized_glu(of.x, of.up, weight=of.weight, **EXPERT, **options)


def our_expert_gradients(of: Inputs, **options: object) -> object:
    return functional.quantized_glu_backward(
        of.dy, of.x, of.up, weight=of.weight, **EXPERT, **options
    )


# With a scale for each row there is an amax; TensorWise is for forward passes alone.
BACKWARD = tuple(RECIPES)[1:]
EXPERTS = ("RowWise both", "BlockWise1x128 both rceil", "both")
EXPERT_FORWARD = ("forward", "logistic_1702", 2, 1)
EXPERT_BACKWARD = ("backward", "logistic_1702", 3, 2)
PASSES = {
    "gate forward": Pass(
        *("quantized_gate", "forward", "normal", 1, 1),
        lambda of: ([F.gelu(of.x)], []),
        exact(lambda x, up, weight: reference.normal(x)),
        lambda of, **k: functional.quantized_gate(of.x, **k),
    ),
    "GLU forward": Pass(
        *("quantized_glu", "forward", "logistic", 2, 1),
        lambda of: ([F.silu(of.x) * of.up], []),
        exact(lambda x, up, weight: reference.logistic(x) * up),
        lambda of, **k: functional.quantized_swiglu(of.x, of.up, **k),
    ),
    "gate backward with a bias": Pass(
        *("quantized_bias_gate", "backward", "normal", 2, 1),
        gelu_gradient,
        exact_gradients(lambda x, up, weight: reference.normal(x + up[0]), 1),
        lambda of, **k: functional.quantized_gate_backward(of.dy, of.x, of.up[0], **k),
        BACKWARD,
    ),
    "GLU backward": Pass(
        *("quantized_glu", "backward", "logistic", 3, 2),
        silu_gradients,
        exact_gradients(lambda x, up, weight: reference.logistic(x) * up, 2),
        lambda of, **k: functional.quantized_glu_backward(of.dy, of.x, of.up, gate="logistic", **k),
        BACKWARD,
    ),
    "expert forward": Pass(
        *("quantized_expert", *EXPERT_FORWARD),
        lambda of: ([expert(of.x, of.up, of.weight)], []),
        exact(expert),
        our_expert,
        EXPERTS,
    ),
    "expert backward": Pass(
        *("quantized_expert", *EXPERT_BACKWARD),
        expert_gradients,
        exact_gradients(expert, 2),
        our_expert_gradients,
        EXPERTS,
    ),
    "experts forward": Pass(
        *("quantized_experts", *EXPERT_FORWARD),
        lambda of: ([expert(of.x, of.up, of.weight)], []),
        exact(expert),
        our_expert,
        EXPERTS,
        has_groups=True,
    ),
    "experts backward": Pass(
        *("quantized_experts", *EXPERT_BACKWARD),
        expert_gradients,
        exact_gradients(expert, 2),
        our_expert_gradients,
        EXPERTS,
        has_groups=True,
    ),
}
