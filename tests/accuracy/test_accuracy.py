"""float32 and float64: value and derivative within the bounds of the table of operators, and in all
dtypes the second derivative. Products with incoming gradients and sums with a bias within the
bounds stated here.

``pytest -s`` prints the largest errors that it meets; ``python -m tests.oracles.report`` makes a
table of them.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.oracles import oracle, sweeps
from tests.oracles.oracle import DERIVATIVE, FORMATS, SECOND_DERIVATIVE
from tests.oracles.sweeps import HALF, ORDERS, WIDE

ops = torch.ops.gelu_kernels

Record = Callable[[str, object], None]

both_orders = pytest.mark.parametrize("order", ORDERS, ids=ORDERS.get)
every_dtype = pytest.mark.parametrize("dtype", FORMATS, ids=str)


def check(largest: sweeps.Largest, bound: float, record_property: Record) -> None:
    record_property("largest error", str(largest))
    print(f" {largest}")
    assert largest.error <= bound, str(largest)


@pytest.mark.parametrize("spacing", [31, pytest.param(1, marks=pytest.mark.slow)])
@both_orders
def test_float32_over_the_whole_range(
    gate: str, order: int, spacing: int, device: str, record_property: Record
) -> None:
    largest = sweeps.float32_sweep(gate, order, device, spacing)
    assert largest.count >= 5e7 / spacing
    check(largest, sweeps.bound(order, torch.float32), record_property)


@both_orders
@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_against_mpmath(
    gate: str, order: int, dtype: torch.dtype, device: str, record_property: Record
) -> None:
    largest = sweeps.mpmath_sweep(gate, order, dtype, device)
    check(largest, sweeps.bound(order, dtype), record_property)


@every_dtype
def test_second_derivative(
    gate: str, dtype: torch.dtype, device: str, record_property: Record
) -> None:
    largest = sweeps.second_derivative_sweep(gate, dtype, device)
    check(largest, sweeps.bound(SECOND_DERIVATIVE, dtype), record_property)


@every_dtype
def test_product_with_incoming_gradient(
    gate: str, dtype: torch.dtype, device: str, record_property: Record
) -> None:
    """As for g' by itself; a quarter in 16 bits, where the product is rounded but once."""
    bound = sweeps.bound(DERIVATIVE, dtype) if dtype in WIDE else 0.25
    check(sweeps.product_sweep(gate, dtype, device), bound, record_property)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_product_in_the_tail(gate: str, dtype: torch.dtype, device: str) -> None:
    """Where g'(x) rounds to a zero, dx is near dy g'(x) for the greatest dy too."""
    x = oracle.every_16_bit_input(dtype)
    x = x[(oracle.correctly_rounded_results(gate, DERIVATIVE, dtype) == 0) & (x < 0)]
    assert len(x) > 5000
    info = torch.finfo(dtype)
    greatest, least = info.max, info.smallest_normal * info.eps
    exact = oracle.reference(gate, DERIVATIVE, np.maximum(x.double().numpy(), -1e30)) * greatest
    dy = torch.full_like(x, greatest, device=device)
    dx = ops.gate_backward(dy, x.to(device), None, gate).cpu().double().numpy()
    assert np.all(np.abs(dx - exact) <= np.maximum(np.abs(exact) / 16, greatest * least / 8))
    assert not np.any(dx[np.abs(exact) < least / 8])


@both_orders
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_sum_with_bias_in_16_bits(
    gate: str, order: int, dtype: torch.dtype, device: str, record_property: Record
) -> None:
    """3/4 ULP: correct rounding is claimed for 16-bit inputs; a sum can be any float32."""
    check(sweeps.half_bias_sweep(gate, order, dtype, device), 0.75, record_property)


@both_orders
@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_sum_with_bias(gate: str, order: int, dtype: torch.dtype, device: str) -> None:
    """The same bits as without a bias for the sum, which is rounded to the dtype."""
    x, bias = (t.to(device) for t in sweeps.sums(gate, dtype))
    y = oracle.evaluate(gate, order, x, bias)
    assert torch.equal(y, oracle.evaluate(gate, order, x + bias))


@every_dtype
def test_second_derivative_with_bias_and_gradients(
    gate: str, dtype: torch.dtype, device: str
) -> None:
    """Powers of two scale the result exactly; the bias is added before anything else."""
    x = torch.linspace(-5, 5, 81, dtype=dtype, device=device)
    bias = torch.full((81,), 0.5, dtype=dtype, device=device)
    ddx, dy = torch.full_like(x, 4), torch.full_like(x, -0.5)
    y = torch.ops.gelu_kernels.gate_double_backward(ddx, dy, x, bias, gate)
    s = (x.double() + 0.5).tolist()
    expected = [-2 * oracle.exact(gate, SECOND_DERIVATIVE, s_i) for s_i in s]
    magnitude = [2 * oracle.second_derivative_terms(gate, s_i) for s_i in s]
    errors = oracle.exact_ulp_errors(y, expected, magnitude)
    assert errors.max() <= sweeps.bound(SECOND_DERIVATIVE, dtype)
