"""The SOI map beside what one writes without this package, x * bernoulli(F(x)), and, for Phi,
beside the GELU and dropout that it stands for."""

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.cases import Case, Gelu, backward, forward
from gelu_kernels import functional

DISTRIBUTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": torch.special.ndtr,
    "tanh": lambda x: torch.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)),
    "sigmoid": lambda x: torch.sigmoid(1.702 * x),
}


def chain(distribution: Callable[[Tensor], Tensor]) -> Gelu:
    return lambda x: x * torch.bernoulli(distribution(x))


def dropout(x: Tensor) -> Tensor:
    return F.dropout(F.gelu(x))


def check(f: Gelu, x: Tensor, approximate: str) -> None:
    """What is kept is kept exactly, passes the gradient, and is as frequent as it should be."""
    leaf = x.clone().requires_grad_()
    y = f(leaf)
    (m,) = torch.autograd.grad(y, leaf, torch.ones_like(y))
    assert torch.logical_or(m == 0, m == 1).all()
    assert torch.equal(y.detach(), torch.where(m == 1, x, 0))
    p = DISTRIBUTIONS[approximate](x.double())
    for side in (x < 0, x > 0):
        excess = (m.double() - p)[side].sum().abs()
        assert excess < 5 * (p * (1 - p))[side].sum().sqrt()


def throughput() -> Iterator[Case]:
    """2^18 elements, in cache; use one thread."""
    for dtype in (torch.float32, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        generator = torch.Generator().manual_seed(0)
        x, dy = (torch.randn(256, 1024, generator=generator).to(dtype) for _ in range(2))
        for approximate, distribution in DISTRIBUTIONS.items():
            ours, eager = partial(functional.soi_map, approximate=approximate), chain(distribution)
            for f in (ours, eager):
                check(f, x, approximate)
            others = {approximate: eager}
            if approximate == "none":
                others["dropout"] = dropout
            for label, other in others.items():
                pair = {"ours": ours, "torch": other}
                title = f"{name:8} soi_map   {label:7}"
                forwards = {k: forward(f, (x,)) for k, f in pair.items()}
                backwards = {k: backward(f, (x,), dy) for k, f in pair.items()}
                yield Case(f"{title} forward", x.numel(), forwards)
                yield Case(f"{title} backward", x.numel(), backwards)
