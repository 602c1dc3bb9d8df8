"""In 16 bits, value and derivative are the exact ones, correctly rounded, for all inputs."""

import pytest
import torch

from tests.oracles import oracle, sweeps
from tests.oracles.oracle import DERIVATIVE, VALUE

every_dtype = pytest.mark.parametrize("dtype", sweeps.HALF, ids=str)


@every_dtype
@pytest.mark.parametrize("order", [VALUE, DERIVATIVE], ids=["value", "derivative"])
def test_correctly_rounded(gate: str, order: int, dtype: torch.dtype, device: str) -> None:
    y = oracle.evaluate(gate, order, oracle.every_16_bit_input(dtype).to(device))
    wrong = sweeps.misrounded(gate, order, dtype, y)
    assert wrong.numel() == 0, f"{wrong.numel()} inputs, such as {wrong[:5].tolist()}"


@every_dtype
def test_signs_and_nan(gate: str, dtype: torch.dtype, device: str) -> None:
    """A value has its input's sign, a zero as well; NaN gives NaN, and nothing else does."""
    x = oracle.every_16_bit_input(dtype)
    y, dx = (oracle.evaluate(gate, order, x.to(device)).cpu() for order in (VALUE, DERIVATIVE))
    assert torch.equal(y.isnan(), x.isnan())
    assert torch.equal(dx.isnan(), x.isnan())
    assert torch.equal(y.signbit()[~x.isnan()], x.signbit()[~x.isnan()])


@every_dtype
def test_public_operator_is_the_core_operator(gate: str, dtype: torch.dtype, device: str) -> None:
    """And its gradient, by PyTorch's own route, is correctly rounded too."""
    x = oracle.every_16_bit_input(dtype).to(device).requires_grad_()
    y = torch.ops.gelu_kernels.fused_gate(x, gate=gate)
    (dx,) = torch.autograd.grad(y, x, torch.ones_like(y))
    for order, found in ((VALUE, y), (DERIVATIVE, dx)):
        assert sweeps.misrounded(gate, order, dtype, found.detach()).numel() == 0
