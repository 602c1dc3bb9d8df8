"""float32 and float64: value and derivative within the bounds of the table of operators, and in all
dtypes the second derivative. Products with incoming gradients and sums with a bias within the
bounds stated here. In every dtype the limits: infinities, zeros, NaN and subnormal numbers.

``pytest -s`` prints the largest errors that it meets; ``python -m tests.oracles.report`` makes a
table of them.
"""

from collections.abc import Callable, Iterator
from itertools import product

import pytest
import torch

from tests.cases import each
from tests.oracles import limits, oracle, sweeps
from tests.oracles.oracle import DERIVATIVE, FORMATS, SECOND_DERIVATIVE
from tests.oracles.sweeps import HALF, ORDERS, WIDE, Largest

ops = torch.ops.gelu_kernels

Within = Callable[[Largest, float], None]

LIMITS = [
    limits.infinity_and_huge_numbers,
    limits.zero,
    limits.subnormals_are_kept,
    limits.subnormal_results_in_the_tail,
    limits.subnormal_gradients_are_kept,
]


@pytest.fixture
def within(record_property: Callable[[str, object], None]) -> Iterator[Within]:
    """Compares a largest error with its bound, and leaves it in the report of `make gpu`."""
    met = []

    def within(largest: Largest, bound: float) -> None:
        met.append(str(largest))
        assert largest.error <= bound, str(largest)

    yield within
    record_property("largest error", "; ".join(met))
    print("", *met, sep="\n")


@pytest.mark.parametrize("spacing", [31, pytest.param(1, marks=pytest.mark.slow)])
@each(order=ORDERS)
def test_float32_over_the_whole_range(
    order: int, gate: str, spacing: int, device: str, within: Within
) -> None:
    largest = sweeps.float32_sweep(gate, order, device, spacing)
    assert largest.count >= 5e7 / spacing
    within(largest, sweeps.bound(order, torch.float32))


@each(dtype=WIDE, order=ORDERS)
def test_against_mpmath(
    dtype: torch.dtype, order: int, gate: str, device: str, within: Within
) -> None:
    within(sweeps.mpmath_sweep(gate, order, dtype, device), sweeps.bound(order, dtype))


@each(dtype=FORMATS)
def test_second_derivative(dtype: torch.dtype, gate: str, device: str, within: Within) -> None:
    largest = sweeps.second_derivative_sweep(gate, dtype, device)
    within(largest, sweeps.bound(SECOND_DERIVATIVE, dtype))


@each(dtype=FORMATS)
def test_product_with_incoming_gradient(
    dtype: torch.dtype, gate: str, device: str, within: Within
) -> None:
    """As for g' by itself; a quarter in 16 bits, where the product is rounded but once."""
    bound = sweeps.bound(DERIVATIVE, dtype) if dtype in WIDE else 0.25
    within(sweeps.product_sweep(gate, dtype, device), bound)


@each(dtype=HALF, order=ORDERS)
def test_sum_with_bias_in_16_bits(
    dtype: torch.dtype, order: int, gate: str, device: str, within: Within
) -> None:
    """3/4 ULP: correct rounding is claimed for 16-bit inputs; a sum can be any float32."""
    within(sweeps.half_bias_sweep(gate, order, dtype, device), 0.75)


def test_sum_with_bias(gate: str, device: str) -> None:
    """The same bits as without a bias for the sum, which is rounded to the dtype."""
    for dtype, order in product(WIDE, ORDERS):
        x, bias = (t.to(device) for t in sweeps.sums(gate, dtype))
        y = oracle.evaluate(gate, order, x, bias)
        assert torch.equal(y, oracle.evaluate(gate, order, x + bias)), (dtype, order)


@each(dtype=FORMATS)
def test_second_derivative_with_bias_and_gradients(
    dtype: torch.dtype, gate: str, device: str
) -> None:
    """Powers of two scale the result exactly; the bias is added before anything else."""
    x = torch.linspace(-5, 5, 81, dtype=dtype, device=device)
    bias = torch.full((81,), 0.5, dtype=dtype, device=device)
    ddx, dy = torch.full_like(x, 4), torch.full_like(x, -0.5)
    y = ops.gate_double_backward(ddx, dy, x, bias, gate)
    s = (x.double() + 0.5).tolist()
    expected = [-2 * oracle.exact(gate, SECOND_DERIVATIVE, s_i) for s_i in s]
    magnitude = [2 * oracle.second_derivative_terms(gate, s_i) for s_i in s]
    errors = oracle.exact_ulp_errors(y, expected, magnitude)
    assert errors.max() <= sweeps.bound(SECOND_DERIVATIVE, dtype)


@each(check=LIMITS, dtype=FORMATS)
def test_limits(check: Callable[..., None], dtype: torch.dtype, gate: str, device: str) -> None:
    check(gate, dtype, device)


@each(order=limits.ORDERS, dtype=FORMATS)
def test_nan(order: int, dtype: torch.dtype, gate: str, device: str) -> None:
    limits.nan_gives_nan(gate, order, dtype, device)
