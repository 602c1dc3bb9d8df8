"""The sides of a comparison: an operator by this package, by PyTorch, by Inductor and by other
packages (peers.py)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import torch
import torch._functorch.config
from torch import Tensor

from bench import operators
from bench.operators import Backward, Call
from bench.workloads import Inputs


@dataclass(frozen=True)
class Side:
    forward: Callable[..., Tensor]  # of the operands
    backward: Backward | None = None  # as an operator; else by autograd

    def call(self, label: str, inputs: Inputs) -> Call:
        if label == "forward":
            return partial(self.forward, *inputs.operands)
        if label == "backward" and self.backward:
            return self.backward(inputs.dy, *inputs.operands)
        leaves = inputs.leaves()
        if label == "both":
            return lambda: torch.autograd.grad(self.forward(*leaves), leaves, inputs.dy)
        y = self.forward(*leaves)
        return lambda: torch.autograd.grad(y, leaves, inputs.dy, retain_graph=True)

    def results(self, label: str, inputs: Inputs) -> tuple[Tensor, ...]:
        """The value, or the gradients."""
        result = self.call(label, inputs)()
        return result if isinstance(result, tuple) else (result,)


@cache  # one side for an operator and gate, whose check is not repeated
def ours(op: str, gate: str) -> Side:
    return Side(operators.our_forward(op, gate), operators.our_backward(op, gate))


@cache
def eager(op: str, gate: str) -> Side:
    return Side(operators.eager_forward(op, gate), operators.eager_backward(op, gate))


def compiled(op: str, gate: str) -> Side:
    # dynamic: one compilation serves every size, as 2 to 8 % slower code on a CPU.
    torch.compiler.reset()
    # Else a backward pass cannot be run twice, and so not alone.
    torch._functorch.config.donated_buffer = False
    return Side(torch.compile(operators.eager_forward(op, gate), dynamic=True))


def sides_of(
    op: str, gate: str, backend: str, peers: dict[str, dict[tuple[str, str], Side]], inductor: bool
) -> dict[str, Side]:
    """By name; ours, under the name of its backend, and eager PyTorch come first."""
    found = {backend: ours(op, gate), "eager": eager(op, gate)}
    if inductor:
        found["compile"] = compiled(op, gate)
    return found | {name: sides[op, gate] for name, sides in peers.items() if (op, gate) in sides}
