"""The gates in loops that Inductor writes, held to the accuracy of the kernels."""

from collections.abc import Iterator
from itertools import product

import pytest
import torch
from torch import Tensor
from torch._inductor.utils import run_and_get_code

from gelu_kernels.compile import disable_fusion, enable_fusion
from tests import bits
from tests.cases import each
from tests.oracles import limits, oracle, sweeps
from tests.oracles.oracle import DERIVATIVE, FORMATS, GATES, SECOND_DERIVATIVE, VALUE

ORDERS = (VALUE, DERIVATIVE, SECOND_DERIVATIVE)
CASES = list(product(GATES, ORDERS))

by_kernels = oracle.evaluate
FIRST_ORDERS = (VALUE, DERIVATIVE)


def every_case(x: Tensor) -> list[Tensor]:
    return [by_kernels(gate, order, x) for gate, order in CASES]


@pytest.fixture(scope="module", autouse=True)
def fused() -> Iterator[None]:
    """In this module the oracle evaluates one compiled function, which calls no operator."""
    torch.compiler.reset()
    enable_fusion()
    compiled = torch.compile(every_case, fullgraph=True, dynamic=True)
    _, code = run_and_get_code(compiled, torch.randn(9))
    assert code and not any("gelu_kernels" in text for text in code)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            oracle, "evaluate", lambda gate, order, x: compiled(x)[CASES.index((gate, order))]
        )
        yield
    disable_fusion()
    torch.compiler.reset()


# Slow where it repeats the accuracy of the kernels, which have the same bits (below).
@pytest.mark.slow
@each(gate=GATES, order=FIRST_ORDERS)
def test_float32(gate: str, order: int) -> None:
    largest = sweeps.float32_sweep(gate, order, "cpu", spacing=101)
    assert largest.count >= 5e5
    assert largest.error <= sweeps.bound(order, torch.float32), str(largest)


@pytest.mark.slow
@each(gate=GATES, order=FIRST_ORDERS)
def test_float64(gate: str, order: int) -> None:
    largest = sweeps.mpmath_sweep(gate, order, torch.float64, "cpu")
    assert largest.error <= sweeps.bound(order, torch.float64), str(largest)


@pytest.mark.slow
@each(gate=GATES, dtype=sweeps.WIDE)
def test_second_derivative(gate: str, dtype: torch.dtype) -> None:
    largest = sweeps.second_derivative_sweep(gate, dtype, "cpu")
    assert largest.error <= sweeps.bound(SECOND_DERIVATIVE, dtype), str(largest)


@each(gate=GATES, order=FIRST_ORDERS, dtype=(torch.float16, torch.bfloat16))
def test_16_bits(gate: str, order: int, dtype: torch.dtype) -> None:
    """At most 6 of all float16 inputs are misrounded, next to a tie. Half a unit is not an error:
    for a subnormal bfloat16, x/2 is a tie as far as this oracle can tell."""
    most = 6 if dtype == torch.float16 else 0
    x = oracle.every_16_bit_input(dtype)
    x = x[x.isfinite()]
    y = oracle.evaluate(gate, order, x)
    errors = oracle.ulp_errors(y, oracle.reference(gate, order, x.double().numpy()))
    assert (errors > 0.5 * (1 + 1e-9)).sum() <= most
    assert errors.max() <= 0.601  # that is next to the root of a derivative


@each(gate=GATES, dtype=FORMATS)
def test_limits_of_every_order(gate: str, dtype: torch.dtype) -> None:
    limits.infinity_and_huge_numbers(gate, dtype, "cpu")
    limits.zero(gate, dtype, "cpu")
    limits.subnormal_results_in_the_tail(gate, dtype, "cpu")
    for order in ORDERS:
        limits.nan_gives_nan(gate, order, dtype, "cpu")


@each(gate=GATES, dtype=sweeps.WIDE)
def test_the_bits_are_those_of_the_kernels(gate: str, dtype: torch.dtype) -> None:
    for x in (bits.any_numbers(dtype).flatten(), 3 * torch.randn(100_000, dtype=dtype)):
        for order in ORDERS:
            fused = oracle.evaluate(gate, order, x)
            assert bits.differing(fused, by_kernels(gate, order, x)) == 0
