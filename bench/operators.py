"""The operators of the table that are measured, and the same in plain PyTorch."""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from gelu_kernels import reference
from gelu_kernels.operators.table import APPROXIMATE, PUBLIC, core
from gelu_kernels.operators.workloads import Gate, formula_of, function_of, of_operands

aten = torch.ops.aten

GATES = APPROXIMATE
OPERATORS = {op.label: op for op in PUBLIC}
Call = Callable[[], object]
Function = Callable[..., Tensor]  # of the operands
Backward = Callable[..., Call]  # of dy and the operands; gives the gradients


def is_measured(op: str, gate: str) -> bool:
    """An operator that takes gate= may have the kernels of one that takes approximate=.
    Then it is measured for gates that approximate= cannot name."""
    row, named = OPERATORS[op], GATES.get(gate) is not None
    if row.selector == "approximate":
        return named
    kernels = row.forward, row.operands
    others = (x for x in PUBLIC if x.selector == "approximate")
    return not named or kernels not in [(x.forward, x.operands) for x in others]


def our_forward(op: str, gate: str) -> Function:
    """By the quickest route that can name the gate."""
    operator = OPERATORS[op]
    function = function_of(operator, gate)
    return function or of_operands(operator, operator.overload, gate=gate)


def our_backward(op: str, gate: str) -> Backward | None:
    """As the core operator, without autograd's time on the CPU. Only forward draws a mask."""
    operator = OPERATORS[op]
    if operator.is_random:
        return None
    backward = core(operator.backward)

    def call(dy: Tensor, *operands: Tensor) -> Call:
        tensors = {"dy": dy, **dict(zip(operator.operands, operands, strict=True))}
        inputs = map(tensors.get, backward.inputs)
        return partial(backward.overload, *inputs, gate, **operator.numbers)

    return call


def quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def laplace_distribution(x: Tensor) -> Tensor:
    tail = torch.exp(x.sub(x.relu(), alpha=2)) / 2  # of -|x|, but with a gradient at 0
    return torch.where(x > 0, 1 - tail, tail)


# As one writes them; another gate is written as in gelu_kernels/reference.py.
EAGER_GATES: dict[str, Gate] = {
    "normal": F.gelu,
    "normal_tanh": partial(F.gelu, approximate="tanh"),
    "logistic_1702": quick_gelu,
    "logistic": F.silu,
    "laplace": lambda x: x * laplace_distribution(x),
    "cauchy": lambda x: x * (0.5 + torch.atan(x) / math.pi),
}
DISTRIBUTIONS: dict[str, Gate] = {
    **reference.DISTRIBUTIONS,
    "normal": torch.special.ndtr,
    "laplace": laplace_distribution,
    "cauchy": lambda x: 0.5 + torch.atan(x) / math.pi,
}


def exact_gate(gate: str) -> Gate:
    """For float64."""
    return getattr(reference, gate)


def distribution(gate: str) -> Gate:
    """F of the gate x F(x)."""
    return DISTRIBUTIONS[gate]


def eager_forward(op: str, gate: str) -> Function:
    row, own = OPERATORS[op], distribution(gate)

    def mask(z: Tensor) -> Tensor:
        return torch.bernoulli(own(z))

    if row.family == "soi":
        return formula_of(row, lambda x: x * mask(x), mask)
    return formula_of(row, EAGER_GATES.get(gate) or exact_gate(gate), own)


# Backward passes by the operators that autograd calls, after forward has saved its tensors.
GRADIENTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "normal": aten.gelu_backward.default,
    "normal_tanh": partial(aten.gelu_backward.default, approximate="tanh"),
    "logistic": aten.silu_backward.default,
}


def eager_gate_backward(gate: str, dy: Tensor, x: Tensor) -> Call:
    return partial(GRADIENTS[gate], dy, x)


def eager_bias_gate_backward(gate: str, dy: Tensor, x: Tensor, bias: Tensor) -> Call:
    gradient = eager_gate_backward(gate, dy, x + bias)

    def call() -> tuple[Tensor, Tensor]:
        dx = gradient()
        return dx, dx.sum(0)

    return call


def eager_glu_backward(gate: str, dy: Tensor, x: Tensor, up: Tensor) -> Call:
    value, gradient = EAGER_GATES[gate](x), GRADIENTS[gate]
    return lambda: (gradient(dy * up, x), dy * value)


def eager_glu_halves_backward(gate: str, dy: Tensor, both: Tensor) -> Call:
    gradients = eager_glu_backward(gate, dy, *both.chunk(2, -1))
    return lambda: torch.cat(gradients(), -1)


EAGER_BACKWARD: dict[str, Callable[..., Call]] = {
    "gelu": eager_gate_backward,
    "gate": eager_gate_backward,
    "bias_gelu": eager_bias_gate_backward,
    "bias_gate": eager_bias_gate_backward,
    "geglu": eager_glu_backward,
    "geglu_halves": eager_glu_halves_backward,
}


def eager_backward(op: str, gate: str) -> Backward | None:
    if op in EAGER_BACKWARD and gate in GRADIENTS:
        return partial(EAGER_BACKWARD[op], gate)
    return None
