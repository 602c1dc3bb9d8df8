"""Jagged nested tensors, of every public operator, forward and backward."""

import re
from collections.abc import Callable

import pytest
import soi_oracle
import torch
from torch import Tensor

from gelu_kernels import functional, reference

LENGTHS = (3, 0, 5)
FEATURES = 4


def nested(*parts: Tensor) -> Tensor:
    return torch.nested.as_nested_tensor(list(parts), layout=torch.jagged)


def parts(device: str) -> list[Tensor]:
    return [torch.randn(n, FEATURES, device=device, requires_grad=True) for n in LENGTHS]


def some_bias(device: str) -> Tensor:
    return torch.randn(FEATURES, device=device, requires_grad=True)


def soi_reference(x: Tensor, bias: Tensor | None) -> Tensor:
    seed = int(torch.empty((), dtype=torch.int64).random_(2**63 - 1))  # as the operators draw it
    m = soi_oracle.kept(x, bias, seed, "normal")
    return (x if bias is None else x + bias).double() * m.to(x.device)


OPERATORS = {
    "gelu": (lambda x, b: functional.gelu(x), lambda x, b: reference.gelu(x.double())),
    "bias_gelu": (functional.bias_gelu, lambda x, b: reference.gelu(x.double() + b.double())),
    "soi_map": (lambda x, b: functional.soi_map(x), lambda x, b: soi_reference(x, None)),
    "bias_soi_map": (functional.bias_soi_map, soi_reference),
}


@pytest.fixture(params=OPERATORS)
def operator(request) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """Of the parts and the bias: an operator on the jagged tensor, and what it is to give."""
    ours, expected = OPERATORS[request.param]
    return (
        lambda *leaves: ours(nested(*leaves[:-1]), leaves[-1]).values(),
        lambda *leaves: expected(torch.cat(leaves[:-1]), leaves[-1]),
    )


def value_and_gradients(f: Callable[..., Tensor], leaves: list[Tensor]) -> list[Tensor]:
    """Of a weighted sum; zero for what f does not take."""
    torch.manual_seed(3)
    y = f(*leaves)
    weights = torch.linspace(0.5, 1.5, y.numel(), device=y.device).view_as(y)
    gradients = torch.autograd.grad(
        (y * weights).sum(), leaves, allow_unused=True, materialize_grads=True
    )
    return [t.double() for t in (y.detach(), *gradients)]


def test_values_and_gradients(operator, device):
    ours, expected = operator
    leaves = [*parts(device), some_bias(device)]
    close = {"rtol": 2e-6, "atol": 2e-6}  # float32 against float64
    wanted = value_and_gradients(expected, leaves)
    torch.testing.assert_close(value_and_gradients(ours, leaves), wanted, **close)


def test_compile(operator):
    ours, expected = operator
    leaves = [*parts("cpu"), some_bias("cpu")]
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    close = {"rtol": 2e-6, "atol": 2e-6}
    wanted = value_and_gradients(expected, leaves)
    torch.testing.assert_close(value_and_gradients(compiled, leaves), wanted, **close)


def test_the_result_has_the_shape_of_x(device):
    x = nested(*parts(device))
    assert (functional.bias_gelu(x, some_bias(device)) + x).shape == x.shape


@pytest.mark.parametrize("op", ["fused_bias_gelu", "fused_bias_soi_map"])
def test_errors(op):
    x = nested(*parts("cpu"))
    call = getattr(torch.ops.gelu_kernels, op)
    with pytest.raises(ValueError, match=f"gelu_kernels::{op}: x must not be ragged along its"):
        call(x.transpose(1, 2), some_bias("cpu"))
    holes = torch.nested.narrow(
        torch.randn(2, 6, FEATURES),
        1,
        torch.tensor([0, 1]),
        torch.tensor([2, 3]),
        layout=torch.jagged,
    )
    with pytest.raises(ValueError, match=re.escape(f"gelu_kernels::{op}: x must have no holes")):
        call(holes, some_bias("cpu"))
    with pytest.raises(ValueError, match=f"gelu_kernels::{op}: bias must be as long as"):
        call(x, torch.randn(FEATURES + 1))
