"""What limits.py says of the kernels, for every gate and dtype."""

import pytest
import torch

from tests.oracles import limits
from tests.oracles.oracle import FORMATS

CHECKS = [
    limits.infinity_and_huge_numbers,
    limits.zero,
    limits.subnormals_are_kept,
    limits.subnormal_results_in_the_tail,
    limits.subnormal_gradients_are_kept,
]
every_dtype = pytest.mark.parametrize("dtype", FORMATS, ids=str)


@every_dtype
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_limits(check, gate: str, dtype: torch.dtype, device: str) -> None:
    check(gate, dtype, device)


@every_dtype
@pytest.mark.parametrize("order", limits.ORDERS, ids=["value", "derivative", "second derivative"])
def test_nan(gate: str, order: int, dtype: torch.dtype, device: str) -> None:
    limits.nan_gives_nan(gate, order, dtype, device)
