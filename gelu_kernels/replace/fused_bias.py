"""A ``torch.nn.Linear`` and the GELU after it, as one module."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import torch

from gelu_kernels import nn
from gelu_kernels.operators import APPROXIMATE
from gelu_kernels.replace.activations import intercepted
from gelu_kernels.replace.compositions import compositions
from gelu_kernels.replace.replacement import describe


def linear_before(owner: torch.nn.Module, attribute: str, places: Counter[int]) -> tuple[str, str]:
    """The attribute with the Linear whose result this one alone sees; or why there is none."""
    if "forward" in vars(owner):
        before = None
    elif type(owner).forward is torch.nn.Sequential.forward:
        before = {second: first for first, second in pairwise(owner._modules)}.get(attribute)
    else:
        before = compositions(type(owner)).get(attribute)
    linear = before and getattr(owner, before, None)
    if linear is None:
        why = "no Linear is seen to come before it"
    elif type(linear) is not torch.nn.Linear:
        why = f"{describe(linear)} comes before it"
    elif linear.bias is None:
        why = "the Linear before it has no bias"
    elif places[id(linear)] > 1:
        why = "the Linear before it is shared"
    elif intercepted(linear):
        why = "the Linear before it has hooks or another forward"
    else:
        return before, ""
    return "", why


def linear_gelu(linear: torch.nn.Linear, gate: str) -> nn.LinearGELU:
    # The same dictionary of parameters: what replaces one of them in either is seen in both.
    fused = nn.LinearGELU.__new__(nn.LinearGELU)
    vars(fused).update(vars(linear), approximate=APPROXIMATE[gate], save=None, dither=False)
    return fused


def nothing_for(old: object) -> torch.nn.Module | Callable:
    if isinstance(old, torch.nn.Module):
        return torch.nn.Identity().train(old.training)
    return identity


def identity(input: torch.Tensor) -> torch.Tensor:
    return input
