"""The sides of a comparison: an operator by this package, by PyTorch, by Inductor and by other
packages (peers.py)."""

from collections.abc import Callable, Iterable
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
    # Its backward writes gradients over the operands: only the first of its calls has the right
    # ones. It takes as long for any numbers.
    overwrites: bool = False

    def call(self, label: str, inputs: Inputs) -> Call:
        if label == "forward":
            return partial(self.forward, *inputs.operands)
        if label == "backward" and self.backward:
            return self.backward(inputs.dy, *inputs.operands)
        leaves = (inputs.copy() if self.overwrites else inputs).leaves()
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


# Modes of torch.compile, by the names of the sides.
COMPILERS = {"compile": None, "max-autotune": "max-autotune-no-cudagraphs"}


def compiled(op: str, gate: str, mode: str | None, dynamic: bool) -> Side:
    """dynamic: one compilation serves every size, as 2 to 8 % slower code on a CPU."""
    # Else a backward pass cannot be run twice, and so not alone.
    torch._functorch.config.donated_buffer = False
    return Side(torch.compile(operators.eager_forward(op, gate), dynamic=dynamic, mode=mode))


def sides_of(
    op: str,
    gate: str,
    backend: str,
    peers: dict[str, dict[tuple[str, str], Side]],
    compilers: Iterable[str],
    dynamic: bool,
) -> dict[str, Side]:
    """By name; ours, under the name of its backend, and eager PyTorch come first."""
    found = {backend: ours(op, gate), "eager": eager(op, gate)}
    torch.compiler.reset()
    found |= {name: compiled(op, gate, COMPILERS[name], dynamic) for name in compilers}
    return found | {name: sides[op, gate] for name, sides in peers.items() if (op, gate) in sides}
