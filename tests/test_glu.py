"""The gated linear unit alone: how exact its products are, one of its gradients
alone, and numbers that overflow in between.
"""

import math

import numpy as np
import oracle
import pytest
import torch
from calls import DTYPES, normal
from oracle import DERIVATIVE, VALUE
from torch import Tensor

from gelu_kernels import functional, reference
from gelu_kernels.operators import core

ops = torch.ops.gelu_kernels
HALF = [torch.float16, torch.bfloat16]
FORWARD, BACKWARD = core("glu_forward"), core("glu_backward")


def run(dy: Tensor, x: Tensor, up: Tensor, gate: str) -> list[Tensor]:
    return [ops.glu_forward(x, up, gate), *ops.glu_backward(dy, x, up, gate)]


def assert_accurate(result: Tensor, factor: np.ndarray, of_gate: np.ndarray, bounds) -> None:
    """In units of the last place, or else so many eps, where what the gate gives and the product
    are normal numbers. In 16 bits everywhere: no worse than with a rounding in between."""
    expected = factor * of_gate
    info = torch.finfo(result.dtype)
    finite = (np.abs(factor) <= torch.finfo(torch.float32).max) & (np.abs(expected) <= info.max)
    is_normal = finite & (np.abs(factor) >= torch.finfo(torch.float32).tiny)
    is_normal &= (np.abs(of_gate) >= info.tiny) & (np.abs(expected) >= info.tiny)
    assert is_normal.sum() > is_normal.size / 8
    errors = np.abs(result.double().numpy() - expected)
    if result.dtype in HALF:
        units = oracle.ulp(expected, result.dtype)
        assert (errors < bounds.tolerance(result.dtype) * units)[is_normal].all()
        rounded = np.abs(factor) * oracle.ulp(of_gate, result.dtype)
        assert (errors <= rounded + units)[finite].all()
    else:
        assert (errors < bounds.tolerance(result.dtype) * info.eps * np.abs(expected))[
            is_normal
        ].all()


@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
def test_accuracy(gate: str, dtype: torch.dtype, device: str) -> None:
    """In 16 bits for every x."""
    if dtype in HALF:
        x = oracle.every_16_bit_input(dtype)
        x = x[x.isfinite()]
    else:
        x = torch.cat([normal(20_000) * scale for scale in (0.1, 1, 3, 10)]).to(dtype)
    numbers = x.double().numpy()
    value, derivative = (oracle.reference(gate, order, numbers) for order in (VALUE, DERIVATIVE))
    for scale in (None, 1, 1e-2):
        up, dy = (
            torch.ones_like(x) if scale is None else (normal(len(x)) * scale).to(dtype)
            for _ in range(2)
        )
        u, d = up.double().numpy(), dy.double().numpy()
        y, dx, dup = (t.cpu() for t in run(dy.to(device), x.to(device), up.to(device), gate))
        assert_accurate(y, u, value, FORWARD)
        assert_accurate(dx, d * u, derivative, BACKWARD)
        assert_accurate(dup, d, value, FORWARD)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_special_values(gate: str, dtype: torch.dtype, device: str) -> None:
    """inf * 0 is NaN, as in the formulas, and a zero has its sign; but g'(-inf) may be -0. Left
    out is g(-inf) in 16 bits: it is no zero before it is rounded, and it is not.
    """
    numbers = torch.tensor([0.0, -0.0, 1.0, -2.0, math.inf, -math.inf, math.nan], dtype=dtype)
    dy, x, up = (t.flatten().to(device) for t in torch.meshgrid(*[numbers] * 3, indexing="ij"))
    if dtype in HALF:
        dy, x, up = (t[x != -math.inf] for t in (dy, x, up))
    leaf = x.double().requires_grad_()
    value = getattr(reference, gate)(leaf)
    (derivative,) = torch.autograd.grad(value.sum(), leaf)
    value = value.detach()
    exactly = [value * up.double(), dy.double() * up.double() * derivative, dy.double() * value]
    y, dx, dup = run(dy, x, up, gate)
    for ours, expected in zip((y, dx, dup), exactly, strict=True):
        assert torch.equal(ours.isnan(), expected.isnan())
        signed = ~expected.isnan() & ~((x == -math.inf) & (ours is dx))
        assert torch.equal(ours.signbit()[signed], expected.signbit()[signed])
        for special in (0, math.inf, -math.inf):
            assert torch.equal(ours == special, expected == special)


def test_gradients_that_overflow_in_between(device: str) -> None:
    """dy·up is not rounded to 16 bits, in a gradient that is differentiated as well."""
    numbers = torch.tensor([[-4.0], [40_000.0], [3.0]], dtype=torch.float16, device=device)
    x, up, dy = numbers.unbind()
    x.requires_grad_()
    (dx,) = torch.autograd.grad(functional.geglu(x, up), x, dy, create_graph=True)
    leaf = x.detach().double().requires_grad_()
    expected = torch.autograd.grad(reference.normal(leaf) * up.double(), leaf, dy.double())
    torch.testing.assert_close(dx.double(), expected[0], rtol=2**-11, atol=0)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("wanted", [0, 1], ids=["x", "up"])
def test_one_gradient_alone(wanted: int, create_graph: bool, device: str) -> None:
    """Other operators compute it, in each dtype as near to the exact one as glu_backward."""
    for dtype in DTYPES:
        dy, *operands = (normal(7, 33, dtype=dtype, device=device) for _ in range(3))
        leaf = operands[wanted].requires_grad_()
        y = functional.geglu(*operands)
        (found,) = torch.autograd.grad(y, leaf, dy, create_graph=create_graph)
        doubles = [t.detach().double().requires_grad_() for t in operands]
        y = reference.normal(doubles[0]) * doubles[1]
        (expected,) = torch.autograd.grad(y, doubles[wanted], dy.double())
        tolerance = {"rtol": 5 * torch.finfo(dtype).eps, "atol": torch.finfo(dtype).eps / 4}
        torch.testing.assert_close(found.double(), expected, **tolerance)
