"""The SOI map: its values and gradients, given which elements soi_oracle.py keeps."""

from itertools import product

import torch
from torch import Tensor

from tests import bits
from tests.calls import DTYPES, GATES, SEED, normal
from tests.cases import each
from tests.oracles import soi_oracle

ops = torch.ops.gelu_kernels


def forward(x: Tensor, bias: Tensor | None = None, gate: str = "normal") -> Tensor:
    return ops.soi_forward(x, bias, torch.tensor(SEED, device=x.device), gate)[0]


def kept(x: Tensor, bias: Tensor | None = None, gate: str = "normal") -> Tensor:
    return soi_oracle.kept(x, bias, SEED, gate).to(x.device)


def same(a: Tensor, b: Tensor) -> bool:
    return bits.differing(a, b) == 0


@each(dtype=DTYPES, gate=GATES)
def test_special_values(dtype: torch.dtype, gate: str, device: str) -> None:
    x = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 1e-7, -1e-7], device=device)
    x = x.to(dtype).repeat(1000).view(1000, 7)
    y = forward(x, None, gate)
    assert y[:, 0].isnan().all()
    assert (y[:, 1] == torch.inf).all()
    assert same(y[:, 2], torch.zeros(1000, dtype=dtype, device=device))
    expected = soi_oracle.select(kept(x, None, gate), x)
    assert same(y, expected)  # a dropped element is +0, a kept one keeps its sign
    assert (bits.patterns(y[:, 4]) == 0).any() and (bits.patterns(y[:, 4]) != 0).any()
    zero = torch.zeros(7, dtype=dtype, device=device)
    assert same(forward(x, zero, gate), soi_oracle.select(kept(x, zero, gate), x + zero))


def test_the_bias_gradient_is_summed_as_the_gates(device: str) -> None:
    """g'(40) is 1: gate_backward_bias sums the numbers that a mask of ones keeps."""
    for shape in ((1000, 37), (3, 2000), (5000, 600)):
        dy = torch.randn(shape, device=device)
        mask = torch.full(((dy.numel() + 7) // 8,), 255, dtype=torch.uint8, device=device)
        _, dbias = ops.soi_backward_bias(dy, mask)
        x, bias = torch.full_like(dy, 40), torch.zeros(shape[1], device=device)
        _, expected = ops.gate_backward_bias(dy, x, bias, "normal")
        assert same(dbias, expected)


def test_a_dropped_gradient_is_zero_not_a_product(device: str) -> None:
    x = torch.linspace(-2, 2, 40, device=device, requires_grad=True)
    y = forward(x)
    y.backward(torch.full_like(y, torch.inf))
    assert same(x.grad, soi_oracle.select(kept(x), torch.full_like(x, torch.inf)))


@each(gate=GATES, dtype=DTYPES)
def test_results_are_selected_not_computed(gate: str, dtype: torch.dtype, device: str) -> None:
    """y is x, or x + bias rounded once, and dx is dy, bit for bit; or they are +0."""
    for shape, is_biased in product(((70, 33), (7, 1031)), (False, True)):
        x, dy = (normal(*shape, dtype=dtype, device=device) for _ in range(2))
        bias = x[0] / 8 if is_biased else None
        y, mask = ops.soi_forward(x, bias, torch.tensor(SEED, device=device), gate)
        expected_y, expected_mask = soi_oracle.expected(x, bias, SEED, gate)
        assert same(y, expected_y) and torch.equal(mask, expected_mask)
        dx, dbias = ops.soi_backward_bias(dy, mask)
        expected = soi_oracle.select(kept(x, bias, gate), dy)
        assert same(dx, expected) and same(ops.soi_backward(dy, mask), expected)
        eps = torch.finfo(dtype).eps
        torch.testing.assert_close(
            dbias.double(), expected.double().sum(0), rtol=eps, atol=64 * eps
        )
