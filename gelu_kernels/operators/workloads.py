"""What an operator of the table computes: its function for users, and the same in plain PyTorch."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from inspect import signature

import torch
import torch.nn.functional as F
from torch import Tensor

from gelu_kernels import functional
from gelu_kernels.operators.table import APPROXIMATE
from gelu_kernels.operators.types import PublicOperator

Gate = Callable[[Tensor], Tensor]
Dropout = Callable[[Tensor, float], Tensor]
Clamp = Callable[..., Tensor]


def of_operands(
    op: PublicOperator, function: Callable[..., Tensor], **options: object
) -> partial[Tensor]:
    """A function of the operands in their order, which passes the keyword-only ones by keyword."""
    keywords = [a.name for a in op.overload._schema.arguments if a.kwarg_only]
    named = tuple(name for name in op.operands if name in keywords)
    count = len(op.operands) - len(named)

    def of_operands(*operands: Tensor, **options: object) -> Tensor:
        others = dict(zip(named, operands[count:], strict=True))
        return function(*operands[:count], **others, **options)

    return partial(of_operands if named else function, **op.numbers, **options)


def function_of(op: PublicOperator, gate: str) -> partial[Tensor] | None:
    """The function of the operands that computes the gate, if one does."""
    for name, only in op.functions.items():
        function = getattr(functional, name)
        if only == gate:
            return of_operands(op, function)
        if only is None and "gate" in signature(function).parameters:
            return of_operands(op, function, gate=gate)
        if only is None and APPROXIMATE[gate]:
            return of_operands(op, function, approximate=APPROXIMATE[gate])
    return None


def formula_of(
    op: PublicOperator,
    gate: Gate,
    distribution: Gate,
    dropout: Dropout = F.dropout,
    clamp: Clamp = torch.clamp,
) -> Callable[..., Tensor]:
    """A function of the operands in plain PyTorch, for a gate x F(x) and its F. It is written as a
    user would write it, since it is timed."""
    if p := op.numbers.get("p"):
        kept = formula_of(replace(op, numbers={}), gate, distribution)
        return lambda *operands: dropout(kept(*operands), p)
    if "loc" in op.operands:
        return lambda x, loc, scale: x * distribution((x - loc) / scale)

    def product(x: Tensor, up: Tensor, weight: Tensor | None = None) -> Tensor:
        if limit := op.numbers.get("limit"):
            x, up = clamp(x, max=limit), clamp(up, -limit, limit)
        if up_offset := op.numbers.get("up_offset"):
            up = up + up_offset
        y = gate(x) * up
        return y if weight is None else y * weight.unsqueeze(-1)

    if op.halves:
        return lambda x, *weight: product(*x.chunk(2, -1), *weight)
    if "up" in op.operands:
        return product
    return (lambda x, bias: gate(x + bias)) if "bias" in op.operands else gate
