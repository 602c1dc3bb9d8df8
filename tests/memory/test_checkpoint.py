"""Activation checkpointing of blocks: the gradients of torch.utils.checkpoint are, bit for bit, the
gradients without it. Recomputation draws the masks and codes that forward drew."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, autocast
from torch.nn import Linear, Module, Sequential
from torch.utils.checkpoint import checkpoint

from gelu_kernels import functional, nn
from tests.calls import SEED, AsModule
from tests.cases import each

Call = Callable[[Tensor], Tensor]


# Each takes 40 features and gives 40.
PARTS: dict[str, Callable[[], Module]] = {
    "GELU": nn.GELU,
    "8bit": partial(nn.GELU, save="8bit"),
    "8bit, dither": partial(nn.GELU, save="8bit", dither=True),
    "4bit, dither": partial(nn.LinearGELU, 40, 40, save="4bit", dither=True),
    "soi_map": lambda: AsModule(functional.soi_map),
    "SOIMap": partial(nn.SOIMap, "logistic"),
    "gate_dropout": lambda: AsModule(partial(functional.gate_dropout, p=0.3)),
    "glu_dropout": lambda: Sequential(
        Linear(40, 80), AsModule(partial(functional.glu_dropout, p=0.3))
    ),
    "CDFGate": nn.CDFGate,
    "GateLinear": partial(nn.GateLinear, 40, 40, gate_bias=True),
    "MLP": partial(nn.MLP, 40, 60),
    "GLU MLP": partial(nn.MLP, 40, 60, glu=True),
}


def results(model: Module, call: Call, is_autocast: bool) -> list[Tensor]:
    """The result, and the gradients of the input and the parameters."""
    model.zero_grad()
    x = torch.linspace(-3, 3, 1200).view(30, 40).requires_grad_()
    torch.manual_seed(SEED)
    with autocast("cpu", torch.bfloat16, enabled=is_autocast):
        y = call(x)
    functional.soi_map(torch.zeros(3))  # other draws come between
    y.float().square().sum().backward()
    return [y.detach(), x.grad, *(p.grad for p in model.parameters())]


def model_of(part: str) -> Module:
    """Two blocks that both draw before the part and after it."""
    blocks = [
        Sequential(Linear(40, 40), torch.nn.Dropout(0.2), PARTS[part](), nn.SOIMap())
        for _ in range(2)
    ]
    return Sequential(*blocks)


@each(part=PARTS, reentrant=[True, False], is_autocast=[False, True])
def test_blocks(part: str, reentrant: bool, is_autocast: bool) -> None:
    model = model_of(part)

    def call(x: Tensor) -> Tensor:
        for block in model:
            x = checkpoint(block, x, use_reentrant=reentrant)
        return x

    found, expected = (results(model, f, is_autocast) for f in (call, model))
    assert all(map(torch.equal, found, expected))


@each(part=PARTS, outer=[True, False], inner=[True, False], is_autocast=[False, True])
def test_nested(part: str, outer: bool, inner: bool, is_autocast: bool) -> None:
    model = model_of(part)
    first, second = model

    def both(x: Tensor) -> Tensor:
        return second(checkpoint(first, x, use_reentrant=inner))

    def call(x: Tensor) -> Tensor:
        return checkpoint(both, x, use_reentrant=outer)

    found, expected = (results(model, f, is_autocast) for f in (call, model))
    assert all(map(torch.equal, found, expected))
