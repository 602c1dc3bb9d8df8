"""In 16 bits, value and derivative are the exact ones, correctly rounded, for all inputs; and the
reciprocal on a GPU is correctly rounded from any estimate that its unit may give.
"""

import numpy as np
import torch

from tests import bits
from tests.cases import each
from tests.oracles import oracle, sweeps
from tests.oracles.oracle import DERIVATIVE, VALUE
from tests.oracles.sweeps import HALF, ORDERS


@each(dtype=HALF, order=ORDERS)
def test_correctly_rounded(dtype: torch.dtype, order: int, gate: str, device: str) -> None:
    y = oracle.evaluate(gate, order, oracle.every_16_bit_input(dtype).to(device))
    wrong = sweeps.misrounded(gate, order, dtype, y)
    assert wrong.numel() == 0, f"{wrong.numel()} inputs, such as {wrong[:5].tolist()}"


def test_signs_and_nan(gate: str, device: str) -> None:
    """A value has its input's sign, a zero as well; NaN gives NaN, and nothing else does."""
    for dtype in HALF:
        x = oracle.every_16_bit_input(dtype)
        y, dx = (oracle.evaluate(gate, order, x.to(device)).cpu() for order in (VALUE, DERIVATIVE))
        assert torch.equal(y.isnan(), x.isnan()), dtype
        assert torch.equal(dx.isnan(), x.isnan()), dtype
        assert torch.equal(y.signbit()[~x.isnan()], x.signbit()[~x.isnan()]), dtype


def test_public_operator_is_the_core_operator(gate: str, device: str) -> None:
    """And so is its gradient, by PyTorch's own route."""
    for dtype in HALF:
        x = oracle.every_16_bit_input(dtype).to(device).requires_grad_()
        y = torch.ops.gelu_kernels.fused_gate(x, gate=gate)
        (dx,) = torch.autograd.grad(y, x, torch.ones_like(y))
        for order, found in ((VALUE, y.detach()), (DERIVATIVE, dx)):
            core = oracle.evaluate(gate, order, x.detach())
            assert bits.differing(found, core) == 0, (dtype, order)


@each(dtype=HALF)
def test_product_in_the_tail(dtype: torch.dtype, gate: str, device: str) -> None:
    """Where g'(x) rounds to a zero, dx is near dy g'(x) for the greatest dy too."""
    x = oracle.every_16_bit_input(dtype)
    x = x[(oracle.correctly_rounded_results(gate, DERIVATIVE, dtype) == 0) & (x < 0)]
    assert len(x) > 5000
    info = torch.finfo(dtype)
    greatest, least = info.max, info.smallest_normal * info.eps
    numbers = np.maximum(x.double().numpy(), -1e30)
    exact = oracle.reference(gate, DERIVATIVE, numbers) * greatest
    dy = torch.full_like(x, greatest, device=device)
    dx = torch.ops.gelu_kernels.gate_backward(dy, x.to(device), None, gate)
    dx = dx.cpu().double().numpy()
    assert np.all(np.abs(dx - exact) <= np.maximum(np.abs(exact) / 16, greatest * least / 8))
    assert not np.any(dx[np.abs(exact) < least / 8])


# The reciprocal


def fma(x: np.ndarray, y: np.ndarray, z: np.ndarray | float) -> np.ndarray:
    """x y + z for floats, rounded once: the sum in double is rounded to odd before it is rounded to
    float."""
    product = x.astype(np.float64) * y  # exact
    total = product + z
    carried = total - product
    error = (product - (total - carried)) + (z - carried)  # Knuth's two-sum
    even = (total.view(np.int64) & 1) == 0
    towards = np.where(error > 0, np.inf, -np.inf)
    odd = np.where((error != 0) & even, np.nextafter(total, towards), total)
    return odd.astype(np.float32)


def test_reciprocal_of_the_hardest_significands() -> None:
    """`reciprocal` of csrc/gates/arithmetic.h: two steps of Newton's from rcp.approx.ftz.f32, which
    is off by at most 2^-23, two units of a float's last place. Hard is an inverse close to the
    middle between two floats. The last significand is left to the unit."""
    x = np.arange(0x3F800000, 0x40000000, dtype=np.uint32).view(np.float32)
    x = x[np.abs(2.0**24 / x.astype(np.float64) % 1 - 0.5) < 2**-9]
    assert len(x) > 10_000 and x[-1] == np.nextafter(np.float32(2), np.float32(0))
    exact = np.float32(1) / x
    for units in range(-2, 3):
        y = (exact.view(np.int32) + units).view(np.float32)
        for _ in range(2):
            y = fma(y, fma(-x, y, np.float32(1)), y)
        assert np.array_equal(y[:-1], exact[:-1]), units
