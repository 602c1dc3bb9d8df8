"""Infinities, huge numbers, zeros and subnormal numbers, for every gate, dtype and derivative.

g(inf) = inf, g(-inf) = -0 or, of the Cauchy gate, -1/pi; g'(inf) = 1, g'(-inf) = 0, g''(+-inf) = 0,
g(-0) = -0, g(+0) = +0, NaN gives NaN, and nothing else does. Near zero g(x) = x/2, g'(x) = 1/2,
g''(x) = 2 F'(0).
"""

import math

import pytest
import torch
from torch import Tensor

from tests.oracles import oracle
from tests.oracles.oracle import DERIVATIVE, SECOND_DERIVATIVE, VALUE

ORDERS = [VALUE, DERIVATIVE, SECOND_DERIVATIVE]
HUGE = {
    torch.float16: [500.0, 30000.0, 65504.0],
    torch.bfloat16: [500.0, 1e19, 1e30, 3e38],
    torch.float32: [500.0, 1e13, 1.8e19, 1e30, 3e38, torch.finfo(torch.float32).max],
    torch.float64: [1000.0, 1e102, 1e155, 1e300, torch.finfo(torch.float64).max],
}

# The tails of the Cauchy gate are powers of x: from here on its derivatives underflow, and g(x) is
# x or -1/pi.
CAUCHY_END = {
    torch.float16: 2.0**12,
    torch.bfloat16: 2.0**50,
    torch.float32: 2.0**50,
    torch.float64: 2.0**358,
}


def results(gate: str, order: int, x: Tensor, device: str) -> list[float]:
    return oracle.evaluate(gate, order, x.to(device)).tolist()


def half(dtype: torch.dtype) -> object:
    """1/2, exactly or to 4 ULP."""
    eps = torch.finfo(dtype).eps if dtype in (torch.float32, torch.float64) else 0
    return pytest.approx(0.5, rel=4 * eps, abs=0)


def bits(numbers: list[float]) -> list[str]:
    """Tells -0 from 0."""
    return [number.hex() for number in numbers]


def infinity_and_huge_numbers(gate: str, dtype: torch.dtype, device: str) -> None:
    end = CAUCHY_END[dtype] if gate == "cauchy" else 0
    x = torch.tensor([*(x for x in HUGE[dtype] if x >= end), math.inf], dtype=dtype)
    count = len(x)
    assert count > 2
    limit = torch.tensor(-1 / math.pi if gate == "cauchy" else -0.0, dtype=dtype).item()
    assert results(gate, VALUE, x, device) == x.tolist()
    assert bits(results(gate, VALUE, -x, device)) == bits([limit] * count)
    assert results(gate, DERIVATIVE, x, device) == [1.0] * count
    assert results(gate, DERIVATIVE, -x, device) == [0.0] * count
    assert results(gate, SECOND_DERIVATIVE, x, device) == [0.0] * count
    assert results(gate, SECOND_DERIVATIVE, -x, device) == [0.0] * count


def zero(gate: str, dtype: torch.dtype, device: str) -> None:
    x = torch.tensor([0.0, -0.0], dtype=dtype)
    assert bits(results(gate, VALUE, x, device)) == bits([0.0, -0.0])
    assert results(gate, DERIVATIVE, x, device) == [half(dtype)] * 2
    positive, negative = results(gate, SECOND_DERIVATIVE, x, device)
    assert positive == negative
    assert positive == pytest.approx(
        float(oracle.exact(gate, SECOND_DERIVATIVE, 0.0)), rel=4 * torch.finfo(dtype).eps
    )


def nan_gives_nan(gate: str, order: int, dtype: torch.dtype, device: str) -> None:
    x = torch.tensor([math.nan, -math.nan, 1.0, math.inf, -math.inf, -0.0], dtype=dtype)
    y = oracle.evaluate(gate, order, x.to(device))
    assert torch.equal(y.isnan().cpu(), x.isnan())


def subnormals_are_kept(gate: str, dtype: torch.dtype, device: str) -> None:
    """Results near x/2 are exact, and nothing flushes subnormal numbers to zero."""
    denormal = torch.tensor(torch.finfo(dtype).smallest_normal, dtype=dtype) / 2
    assert denormal > 0, "this process flushes subnormal numbers to zero"
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    multiples = torch.tensor([2, 4, 6, 8, 20, 64, 100], dtype=torch.float64)
    x = (multiples * smallest).to(dtype)
    assert x.tolist() == (multiples * smallest).tolist()
    assert results(gate, VALUE, x, device) == (x / 2).tolist()
    assert results(gate, VALUE, -x, device) == (-x / 2).tolist()
    assert results(gate, DERIVATIVE, x, device) == [half(dtype)] * len(x)
    assert results(gate, DERIVATIVE, -x, device) == [half(dtype)] * len(x)


def subnormal_results_in_the_tail(gate: str, dtype: torch.dtype, device: str) -> None:
    """In the left tail the value passes through the subnormal numbers, as does the derivative of
    the Cauchy gate."""
    tiny = torch.finfo(dtype).smallest_normal
    if gate == "cauchy":
        x = -torch.logspace(0, math.log2(CAUCHY_END[dtype]), 4096, base=2, dtype=torch.float64)
        y = oracle.evaluate(gate, DERIVATIVE, x.to(dtype).to(device)).cpu().double()
        assert ((y > 0) & (y < tiny)).sum() > 3
        return
    x = -torch.linspace(1, 1024, 1023 * 256 + 1, dtype=torch.float64).to(dtype).unique()
    y = oracle.evaluate(gate, VALUE, x.to(device)).cpu().double()
    assert ((y < 0) & (y > -tiny)).sum() > 3


def subnormal_gradients_are_kept(gate: str, dtype: torch.dtype, device: str) -> None:
    """dx = dy g'(0) = dy / 2 for a subnormal dy."""
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    dy = (torch.tensor([2, -4, 100], dtype=torch.float64) * smallest).to(dtype)
    dx = torch.ops.gelu_kernels.gate_backward(
        dy.to(device), torch.zeros_like(dy, device=device), None, gate
    )
    assert dx.tolist() == (dy / 2).tolist()
