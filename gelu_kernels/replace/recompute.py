"""A gate, or a gated linear unit, and the linear layer after it, as one that recomputes."""

from collections import Counter
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from gelu_kernels import functional, nn
from gelu_kernels.replace.activations import intercepted
from gelu_kernels.replace.compositions import compositions, products
from gelu_kernels.replace.describe import describe
from gelu_kernels.replace.glu import Product
from gelu_kernels.replace.hand_over import handed_over, returned, taken

_CONV1D = "transformers.pytorch_utils.Conv1D"  # a linear layer whose weight is transposed


class Place(NamedTuple):
    """Of a linear layer in a model."""

    owner: torch.nn.Module
    name: str  # qualified

    @property
    def linear(self) -> torch.nn.Module:
        return getattr(self.owner, self.name.rpartition(".")[2])


class GateConv1D(torch.nn.Module):
    """The ``Conv1D`` of transformers after a gate."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.gate_linear(input, self.weight.t(), self.bias, gate=self.gate)


class ProductLinear(nn.GLULinear):
    """Of what a ``GLUGate`` and its product leave to it."""

    def forward(self, input: Tensor | Product) -> Tensor:
        if isinstance(input, Tensor):  # of other shapes, or on its way through a hook
            return torch.nn.functional.linear(input, self.weight, self.bias)
        return super().forward(input.x, input.up)


def linear_after(
    modules: dict[str, torch.nn.Module],
    prefix: str,
    attribute: str,
    is_factor: bool,
    places: Counter[int],
) -> tuple[Place | None, str]:
    """The linear layer that alone takes the result of an activation, or, where that is a factor,
    of its product; or why there is none."""
    place = _place(modules, prefix, attribute, is_factor, places)
    linear = place.linear if place else None
    if not isinstance(linear, torch.nn.Module):
        why = "no Linear is seen to come after it"
    elif type(linear) is not torch.nn.Linear and (is_factor or not _is_conv1d(linear)):
        why = f"{describe(linear)} comes after it"
    elif places[id(linear)] > 1:
        why = "the Linear after it is shared"
    elif intercepted(linear):
        why = "the Linear after it has hooks or another forward"
    else:
        return place, ""
    return None, why


def _place(
    modules: dict[str, torch.nn.Module],
    prefix: str,
    attribute: str,
    is_factor: bool,
    places: Counter[int],
) -> Place | None:
    owner = modules[prefix]
    if "forward" in vars(owner):
        return None
    if is_factor:
        after = products(type(owner))
    elif type(owner).forward is torch.nn.Sequential.forward:
        after = dict(pairwise(owner._modules))
    else:
        after = {inner: outer for outer, inner in compositions(type(owner)).items()}
    if attribute in after:
        return _in(owner, prefix, after[attribute])
    if is_factor or returned(type(owner)) != attribute or places[id(owner)] > 1:
        return None
    above, _, first = prefix.rpartition(".")
    parent = modules[above]
    second = handed_over(type(parent)).get(first, "") if "forward" not in vars(parent) else ""
    other = getattr(parent, second, None)
    if other is None or places[id(other)] > 1 or intercepted(owner) or intercepted(other):
        return None
    return _in(other, f"{above}.{second}" if above else second, taken(type(other)))


def _in(owner: torch.nn.Module, prefix: str, attribute: str) -> Place | None:
    has_it = isinstance(getattr(owner, attribute, None), torch.nn.Module)
    return Place(owner, f"{prefix}.{attribute}" if prefix else attribute) if has_it else None


def recomputing(linear: torch.nn.Module, gate: str, is_factor: bool) -> torch.nn.Module:
    """In place of the linear layer, of whose parameters it has the same dictionary."""
    kind = GateConv1D if _is_conv1d(linear) else ProductLinear if is_factor else nn.GateLinear
    options = {"limit": None, "up_offset": 0.0} if is_factor else {"gate_bias": None}
    new = kind.__new__(kind)
    vars(new).update(vars(linear), gate=gate, **options)
    return new


def _is_conv1d(linear: torch.nn.Module) -> bool:
    return f"{type(linear).__module__}.{type(linear).__qualname__}" == _CONV1D
