"""Autocast: the operators keep the dtype of x, as F.gelu does, and cast the other tensors to it."""

import torch

from gelu_kernels import nn, reference
from tests import bits
from tests.calls import PUBLIC_CALLS, SEED, Call, Sample
from tests.cases import each

close = {"rtol": 2**-6, "atol": 2**-5}  # bfloat16


@each(call=PUBLIC_CALLS, compiled=[False, True])
def test_the_others_follow_x(call: Call, compiled: bool, device: str) -> None:
    torch.compiler.reset()
    x, *others = call.inputs((6, 4), lambda *s: torch.randn(s, device=device))
    leaves = [x.bfloat16().requires_grad_(), *(t.requires_grad_() for t in others)]

    f = call.function()
    f = torch.compile(f, fullgraph=True, backend="aot_eager") if compiled else f
    with torch.autocast(device, torch.bfloat16):
        assert f(x, *others).dtype == torch.float32
        torch.manual_seed(SEED)
        y = f(*leaves)
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    assert leaves[0].grad.dtype == torch.bfloat16
    assert all(t.grad.dtype == torch.float32 for t in others)
    sample = Sample(call, call.gates[0], [t.detach().bfloat16() for t in leaves])
    assert bits.same(y, sample.ours()[0])
    doubles = sample.leaves(torch.float64)
    (expected,) = sample.expected(*doubles)
    gradients = torch.autograd.grad(expected.sum(), doubles)
    torch.testing.assert_close(y.double(), expected, **close)
    torch.testing.assert_close([t.grad.double() for t in leaves], list(gradients), **close)


@each(compiled=[False, True])
def test_linear_gelu(compiled: bool, device: str) -> None:
    """The matrix product has the dtype of autocast, and the bias follows it."""
    torch.compiler.reset()
    layer = nn.LinearGELU(7, 5, device=device)
    linear = torch.nn.Linear(7, 5, device=device, dtype=torch.float64)
    linear.load_state_dict(layer.state_dict())
    x = torch.randn(3, 7, device=device)
    call = torch.compile(layer, fullgraph=True, backend="aot_eager") if compiled else layer
    with torch.autocast(device, torch.bfloat16):
        y = call(x)
    assert y.dtype == torch.bfloat16
    expected = reference.gelu(linear(x.double()))
    torch.testing.assert_close(y.double(), expected, rtol=2**-6, atol=2**-6)
    y.sum().backward()
    expected.sum().backward()
    for ours, e in zip(layer.parameters(), linear.parameters(), strict=True):
        assert ours.grad.dtype == torch.float32
        torch.testing.assert_close(ours.grad.double(), e.grad, rtol=2**-5, atol=2**-5)
