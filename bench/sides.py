"""The ways to compute an operator that are compared: ours, PyTorch's, Inductor's and those of other
packages (peers.py)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import torch
import torch._functorch.config
from torch import Tensor

from bench.operators import OPERATORS, Backward, Call, Function, eager_gate, random_gate
from bench.workloads import Inputs

IDENTIFIERS = {"none": "normal", "tanh": "normal_tanh", "sigmoid": "logistic_1702"}


@dataclass(frozen=True)
class Side:
    forward: Callable[..., Tensor]  # of the operands
    # The backward pass as an operator; of dy and the operands.
    backward: Callable[..., Call] | None = None

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


def side(forward: Function, backward: Backward | None, gate: str) -> Side:
    return Side(forward, partial(backward, gate) if backward else None)


@cache  # one side for an operator and gate, whose check is not repeated
def ours(op: str, gate: str) -> Side:
    operator = OPERATORS[op]
    chosen = {"gate": IDENTIFIERS[gate]} if operator.random else {"approximate": gate}
    forward = partial(operator.ours, **chosen)
    return side(forward, operator.our_backward, IDENTIFIERS[gate])


def eager_formula(op: str, gate: str) -> Function:
    operator = OPERATORS[op]
    return operator.formula(random_gate(gate) if operator.random else eager_gate(gate))


@cache
def eager(op: str, gate: str) -> Side:
    in_aten = gate != "sigmoid"
    return side(eager_formula(op, gate), OPERATORS[op].eager_backward if in_aten else None, gate)


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
