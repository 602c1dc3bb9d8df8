"""The operators that are measured: a row has all that the benchmark knows of one."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from gelu_kernels import functional, reference

ops, aten = torch.ops.gelu_kernels, torch.ops.aten

GATES = tuple(reference.gates)
Call = Callable[[], object]
Gate = Callable[[Tensor], Tensor]
Function = Callable[..., Tensor]  # of the operands
Backward = Callable[..., Call]  # of the gate's name, dy and the operands; gives the gradients

# Of the operands, for the rows and columns of the result.
SHAPES: dict[str, Callable[[int, int], tuple[int, ...]]] = {
    "x": lambda rows, columns: (rows, columns),
    "up": lambda rows, columns: (rows, columns),
    "halves": lambda rows, columns: (rows, 2 * columns),
    "bias": lambda rows, columns: (columns,),
}


@dataclass(frozen=True)
class Operator:
    operands: tuple[str, ...]
    formula: Callable[[Gate], Function]  # what one writes without this package
    ours: Callable[..., Tensor]
    # Backward without autograd's time on the CPU; for ours the gate's name is that in C++.
    our_backward: Backward | None = None
    eager_backward: Backward | None = None
    random: bool = False  # the gate multiplies by a mask, and a bit for an element is saved


# The operators that autograd calls, after what the forward pass saves.


def eager_gelu_backward(gate: str, dy: Tensor, x: Tensor) -> Call:
    return partial(aten.gelu_backward.default, dy, x, approximate=gate)


def eager_bias_gelu_backward(gate: str, dy: Tensor, x: Tensor, bias: Tensor) -> Call:
    gradient = eager_gelu_backward(gate, dy, x + bias)

    def call() -> tuple[Tensor, Tensor]:
        dx = gradient()
        return dx, dx.sum(0)

    return call


def eager_geglu_backward(gate: str, dy: Tensor, x: Tensor, up: Tensor) -> Call:
    value = F.gelu(x, approximate=gate)
    return lambda: (aten.gelu_backward.default(dy * up, x, approximate=gate), dy * value)


def eager_gelu_and_mul_backward(gate: str, dy: Tensor, halves: Tensor) -> Call:
    gradients = eager_geglu_backward(gate, dy, *halves.chunk(2, -1))
    return lambda: torch.cat(gradients(), -1)


def gelu_and_mul(gate: Gate) -> Function:
    def function(halves: Tensor) -> Tensor:
        x, up = halves.chunk(2, -1)
        return gate(x) * up

    return function


OPERATORS = {
    "gelu": Operator(
        ("x",),
        lambda gate: gate,
        functional.gelu,
        lambda gate, dy, x: partial(ops.gate_backward.default, dy, x, None, gate),
        eager_gelu_backward,
    ),
    "bias_gelu": Operator(
        ("x", "bias"),
        lambda gate: lambda x, bias: gate(x + bias),
        functional.bias_gelu,
        lambda gate, *tensors: partial(ops.gate_backward_bias.default, *tensors, gate),
        eager_bias_gelu_backward,
    ),
    "geglu": Operator(
        ("x", "up"),
        lambda gate: lambda x, up: gate(x) * up,
        functional.geglu,
        lambda gate, *tensors: partial(ops.glu_backward.default, *tensors, gate),
        eager_geglu_backward,
    ),
    "gelu_and_mul": Operator(
        ("halves",),
        gelu_and_mul,
        functional.geglu,
        lambda gate, *tensors: partial(ops.glu_halves_backward.default, *tensors, gate),
        eager_gelu_and_mul_backward,
    ),
    "soi_map": Operator(("x",), lambda gate: gate, functional.soi_map, random=True),
    "bias_soi_map": Operator(
        ("x", "bias"),
        lambda gate: lambda x, bias: gate(x + bias),
        functional.bias_soi_map,
        random=True,
    ),
}


def quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


# F of the paper's x F(x), as one writes it.
DISTRIBUTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": torch.special.ndtr,
    "tanh": lambda x: torch.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)),
    "sigmoid": lambda x: torch.sigmoid(1.702 * x),
}


def random_gate(gate: str) -> Gate:
    return lambda x: x * torch.bernoulli(DISTRIBUTIONS[gate](x))


def eager_gate(gate: str) -> Gate:
    return quick_gelu if gate == "sigmoid" else partial(F.gelu, approximate=gate)
