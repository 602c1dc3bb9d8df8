"""Gated linear units: the product of an activation and another tensor, as one operator."""

import operator
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from gelu_kernels import functional
from gelu_kernels.replace.compositions import factors

_PRODUCTS = (operator.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__)


class Product(NamedTuple):
    """``gate(x) * up``, not computed yet, for a linear layer that computes it."""

    x: Tensor
    up: Tensor


class Factor:
    """``gate(input)``, not computed yet: its product with a tensor is one ``fused_glu``, or is left
    to the linear layer after it, if that is given and has no hooks, which would want a tensor.

    It is not a tensor. A module gets one only where its source does nothing but multiply it.
    """

    def __init__(self, input: Tensor, gate: str, linear: tuple[torch.nn.Module, ...] = ()) -> None:
        self.input = input
        self.gate = gate
        self.is_left_to_linear = any(
            not (layer._forward_pre_hooks or layer._forward_hooks) for layer in linear
        )

    def __mul__(self, up: object) -> Tensor | Product:
        x = self.input
        same = isinstance(up, Tensor) and (up.shape, up.dtype, up.device) == (
            x.shape, x.dtype, x.device
        )  # fmt: skip
        if same and self.is_left_to_linear:
            return Product(x, up)
        if same:
            return functional.glu(x, up, gate=self.gate)
        return functional.gate(x, gate=self.gate) * up  # which broadcasts and promotes

    __rmul__ = __mul__

    @classmethod
    def __torch_function__(
        cls, function: Callable, types: tuple, args: tuple = (), kwargs: dict | None = None
    ) -> Tensor | Product:
        """Of ``tensor * factor``, which asks for this first."""
        if function not in _PRODUCTS or kwargs:
            return NotImplemented
        one, other = args
        return one.__mul__(other) if isinstance(one, cls) else other.__mul__(one)


class GLUGate(torch.nn.Module):
    """The activation of a gated linear unit; with the linear layer after it, if that computes the
    product."""

    def __init__(self, gate: str, linear: tuple[torch.nn.Module, ...] = ()) -> None:
        super().__init__()
        self.gate = gate
        self.linear = linear  # in a tuple: it is no child

    def forward(self, input: Tensor) -> Factor:
        return Factor(input, self.gate, self.linear)

    def extra_repr(self) -> str:
        return f"gate={self.gate!r}"


def is_factor(owner: torch.nn.Module, attribute: str) -> bool:
    """Whether the owner's source multiplies what the attribute returns, and does nothing else."""
    return "forward" not in vars(owner) and attribute in factors(type(owner))


def glu_gate_for(
    old: object, gate: str, linear: tuple[torch.nn.Module, ...] = ()
) -> torch.nn.Module | Callable:
    if isinstance(old, torch.nn.Module):
        return GLUGate(gate, linear).train(old.training)
    return partial(Factor, gate=gate, linear=linear) if linear else partial(Factor, gate=gate)
