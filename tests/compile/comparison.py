"""Compares a function with its reference: the value, and the gradients of a weighted sum."""

from collections.abc import Callable

import torch
from torch import Tensor

from tests.calls import SEED

close = {"rtol": 2e-6, "atol": 2e-6}  # float32 against float64
bf16_close = {"rtol": 2**-6, "atol": 2**-6}

Function = Callable[..., Tensor]


def value_and_gradients(f: Function, inputs: list[Tensor] | tuple[Tensor, ...]) -> list[Tensor]:
    """For copies of the inputs; the results in float64."""
    inputs = [t.detach().clone().requires_grad_() for t in inputs]
    torch.manual_seed(SEED)
    y = f(*inputs)
    weights = torch.linspace(0.5, 1.5, y.numel(), device=y.device).view_as(y)
    (y * weights).sum().backward()
    return [y.detach().double(), *(t.grad.double() for t in inputs)]


def check(f: Function, expected: Function, *inputs: Tensor, **tolerance: float) -> None:
    ours = value_and_gradients(f, inputs)
    theirs = value_and_gradients(expected, [t.double() for t in inputs])
    torch.testing.assert_close(ours, theirs, **(tolerance or close))
