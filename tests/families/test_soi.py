"""The SOI map alone: special values, its mask, randomness, a bad place.

Which elements are kept is what soi_oracle.py says; all else follows from that.
"""

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from gelu_kernels import functional
from tests import bits
from tests.calls import DTYPES, SEED
from tests.oracles import soi_oracle

ops = torch.ops.gelu_kernels


def forward(x: Tensor, bias: Tensor | None = None, gate: str = "normal") -> Tensor:
    return ops.soi_forward(x, bias, torch.tensor(SEED, device=x.device), gate)[0]


def kept(x: Tensor, bias: Tensor | None = None, gate: str = "normal") -> Tensor:
    return soi_oracle.kept(x, bias, SEED, gate).to(x.device)


def same(a: Tensor, b: Tensor) -> bool:
    return bits.differing(a, b) == 0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_special_values(dtype, gate, device):
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


def test_the_bias_gradient_is_summed_as_that_of_the_gate(device):
    """g'(40) is 1: gate_backward_bias sums the very numbers that a mask of ones keeps."""
    for shape in ((1000, 37), (3, 2000), (5000, 600)):
        dy = torch.randn(shape, device=device)
        mask = torch.full(((dy.numel() + 7) // 8,), 255, dtype=torch.uint8, device=device)
        _, dbias = ops.soi_backward_bias(dy, mask)
        x, bias = torch.full_like(dy, 40), torch.zeros(shape[1], device=device)
        _, expected = ops.gate_backward_bias(dy, x, bias, "normal")
        assert same(dbias, expected)


def test_a_dropped_gradient_is_zero_not_a_product(device):
    x = torch.linspace(-2, 2, 40, device=device, requires_grad=True)
    y = forward(x)
    y.backward(torch.full_like(y, torch.inf))
    assert same(x.grad, soi_oracle.select(kept(x), torch.full_like(x, torch.inf)))


def test_modifying_the_mask_raises(device):
    x = torch.randn(9, device=device, requires_grad=True)
    y, mask = ops.soi_forward(x, None, torch.tensor(1, device=device), "normal")
    mask.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("biased", [False, True])
def test_vmap_randomness(biased: bool):
    x, bias = torch.ones(5, 400), [torch.zeros(400)] if biased else []
    call = functional.bias_soi_map if biased else functional.soi_map
    in_dims = (0, *(None for _ in bias))
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(call, in_dims)(x, *bias)
    torch.manual_seed(1)
    alone = call(x[0], *bias)
    torch.manual_seed(1)
    same_for_all = vmap(call, in_dims, randomness="same")(x, *bias)
    assert all(torch.equal(row, alone) for row in same_for_all)
    different = vmap(call, in_dims, randomness="different")(x, *bias)
    assert len({tuple(row.tolist()) for row in different}) == 5
    unbatched = vmap(lambda _: call(x[0], *bias), randomness="different")(torch.arange(5))
    assert len({tuple(row.tolist()) for row in unbatched}) == 5
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(lambda _: call(x[0], *bias))(torch.arange(5))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_results_are_selected_not_computed(gate: str, dtype: torch.dtype, device: str) -> None:
    """Bit by bit: y is x, or x + bias rounded once, and dx is dy, or they are +0."""
    x, dy = (torch.randn(70, 33, dtype=torch.float64, device=device).to(dtype) for _ in range(2))
    for bias in (None, x[0] / 8):
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


def test_a_strided_mask(device: str) -> None:
    dy = torch.randn(9, 33, device=device)
    mask = torch.randint(256, (2 * 38,), dtype=torch.uint8, device=device)[::2]
    for op in (ops.soi_backward, ops.soi_backward_bias):
        ours, expected = (torch.as_tensor(op(dy, m)[0]) for m in (mask, mask.contiguous()))
        assert same(ours, expected)


def test_a_mask_has_no_gradient(device: str) -> None:
    x = torch.randn(9, device=device, requires_grad=True)
    y, mask = ops.soi_forward(x, None, torch.tensor(1, device=device), "normal")
    assert y.requires_grad and not mask.requires_grad


@pytest.mark.parametrize(
    "place, message",
    [
        ((-1,), "offset must not be negative, got -1"),
        ((0, -2), "row_length must not be negative, got -2"),
        ((0, 1, -3), "row_stride must not be negative, got -3"),
    ],
)
def test_a_place_is_not_negative(place: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=f"gelu_kernels::soi_forward: {message}"):
        ops.soi_forward(torch.ones(2, 3), None, torch.tensor(1), "normal", *place)


@pytest.mark.parametrize("op", ["soi_map", "fused_bias_soi_map"])
def test_a_generator_of_another_device(op: str) -> None:
    x = torch.ones(2, 3, device="meta")
    bias = [] if op == "soi_map" else [x[0]]
    message = f"gelu_kernels::{op}: generator must be on the device of x, meta, got cpu"
    with pytest.raises(ValueError, match=message):
        getattr(ops, op)(x, *bias, generator=torch.Generator())
