"""The ways to compute an operator that are compared: ours, PyTorch's, Inductor's and those of other
packages (peers.py)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch._functorch.config
import torch.nn.functional as F
from torch import Tensor

from bench.workloads import Inputs
from gelu_kernels import functional

Call = Callable[[], object]

ops, aten = torch.ops.gelu_kernels, torch.ops.aten
IDENTIFIERS = {"none": "normal", "tanh": "normal_tanh", "sigmoid": "logistic_1702"}


@dataclass(frozen=True)
class Side:
    forward: Callable[..., Tensor]  # of x, or of x and bias
    # The backward pass as an operator, without autograd's time on the CPU; of the inputs.
    backward: Callable[[Inputs], Call] | None = None

    def call(self, label: str, inputs: Inputs) -> Call:
        if label == "forward":
            return partial(self.forward, *inputs.operands)
        leaves = inputs.leaves()
        if label == "both":
            return lambda: torch.autograd.grad(self.forward(*leaves), leaves, inputs.dy)
        if self.backward:
            return self.backward(inputs)
        y = self.forward(*leaves)
        return lambda: torch.autograd.grad(y, leaves, inputs.dy, retain_graph=True)


def our_gate_backward(gate: str, inputs: Inputs) -> Call:
    operator = ops.gate_backward if inputs.bias is None else ops.gate_backward_bias
    return partial(operator.default, inputs.dy, inputs.x, inputs.bias, IDENTIFIERS[gate])


def ours(op: str, gate: str) -> Side:
    if op == "soi_map":
        return Side(partial(functional.soi_map, approximate=gate))
    forward = functional.gelu if op == "gelu" else functional.bias_gelu
    return Side(partial(forward, approximate=gate), partial(our_gate_backward, gate))


def quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


# F of the paper's x F(x), as one writes it.
DISTRIBUTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": torch.special.ndtr,
    "tanh": lambda x: torch.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)),
    "sigmoid": lambda x: torch.sigmoid(1.702 * x),
}


def eager_formula(op: str, gate: str) -> Callable[..., Tensor]:
    """What one writes without this package."""
    if op == "soi_map":
        return lambda x: x * torch.bernoulli(DISTRIBUTIONS[gate](x))
    if gate == "sigmoid":
        return quick_gelu if op == "gelu" else lambda x, bias: quick_gelu(x + bias)
    if op == "gelu":
        return lambda x: F.gelu(x, approximate=gate)
    return lambda x, bias: F.gelu(x + bias, approximate=gate)


def eager_gelu_backward(gate: str, inputs: Inputs) -> Call:
    """What autograd calls."""
    gelu_backward = partial(aten.gelu_backward.default, approximate=gate)
    if inputs.bias is None:
        return partial(gelu_backward, inputs.dy, inputs.x)
    saved = inputs.x + inputs.bias

    def call() -> tuple[Tensor, Tensor]:
        dx = gelu_backward(inputs.dy, saved)
        return dx, dx.sum(0)

    return call


def eager(op: str, gate: str) -> Side:
    has_operator = op != "soi_map" and gate != "sigmoid"
    backward = partial(eager_gelu_backward, gate) if has_operator else None
    return Side(eager_formula(op, gate), backward)


def compiled(op: str, gate: str) -> Side:
    # dynamic: one compilation serves every size, as 2 to 8 % slower code on a CPU.
    torch.compiler.reset()
    # Else a backward pass cannot be run twice, and so not alone.
    torch._functorch.config.donated_buffer = False
    return Side(torch.compile(eager_formula(op, gate), dynamic=True))


def sides_of(
    op: str, gate: str, backend: str, peers: dict[str, dict[tuple[str, str], Side]], inductor: bool
) -> dict[str, Side]:
    """By name; ours, under the name of its backend, and eager PyTorch come first."""
    found = {backend: ours(op, gate), "eager": eager(op, gate)}
    if inductor:
        found["compile"] = compiled(op, gate)
    return found | {name: sides[op, gate] for name, sides in peers.items() if (op, gate) in sides}
