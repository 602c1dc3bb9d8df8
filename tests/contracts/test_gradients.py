"""Derivatives of every order, in every way that PyTorch takes them, equal the reference's autograd.

All in float64, where the reference is good to a few units in the last place.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp

from tests.calls import CALLS, PUBLIC_CALLS, Call, Results, Sample

# Around zero, on both sides of the derivative's root near -0.752, and in both tails.
POINTS = [[-8.0, -5.0, -1.3], [-0.76, -0.75, -0.3], [-1e-3, 1e-3, 0.3], [0.9, 2.3, 4.5]]
# The reference's higher derivatives cancel in the right tail, where s (1 - s) is small.
close = {"rtol": 1e-10, "atol": 1e-12}

Function = Callable[..., Results]


def at_points(call: Call, gate: str, device: str) -> Sample:
    """x is the points; the others are some numbers."""
    points = torch.tensor(POINTS, dtype=torch.float64)
    sample = call.sample(points.shape, gate=gate)
    named = sample.named()
    if "x" in named:
        others = named["x"][..., points.size(-1) :]
        named["x"] = torch.cat([points, others], -1)
    if "bias" in named:
        named["bias"] /= 30
    sample = Sample(call, gate, [t.to(device) for t in named.values()])
    sample.expected()  # finds the SOI map's mask, which no transform lets it do
    return sample


@pytest.fixture(params=[(c, g) for c in CALLS for g in c.gates], ids=lambda p: f"{p[0]}-{p[1]}")
def sample(request: pytest.FixtureRequest, device: str) -> Sample:
    """Every call with every gate."""
    return at_points(*request.param, device)


@pytest.fixture(params=CALLS, ids=str)
def one_gate(request: pytest.FixtureRequest, device: str) -> Sample:
    return at_points(request.param, request.param.gates[-1], device)


@pytest.fixture(
    params=[(c, name) for c in PUBLIC_CALLS for name in c.floating if len(c.floating) > 1],
    ids=lambda p: f"{p[0]}-{p[1]}",
)
def one_of_two(request: pytest.FixtureRequest, device: str) -> tuple[Sample, int]:
    """And the place of one of its tensors."""
    call, name = request.param
    return at_points(call, call.gates[-1], device), call.floating.index(name)


def weights(like: Tensor) -> Tensor:
    numbers = torch.linspace(0.5, 1.5, like.numel(), dtype=like.dtype, device=like.device)
    return numbers.view_as(like)


def floating(f: Function) -> Function:
    """Without the SOI map's mask."""

    def call(*tensors: Tensor) -> Results:
        return tuple(t for t in f(*tensors) if t.is_floating_point())

    return call


def weighted(f: Function) -> Callable[..., Tensor]:
    return lambda *tensors: sum((t * weights(t)).sum() for t in floating(f)(*tensors))


def assert_close(ours: object, expected: object) -> None:
    torch.testing.assert_close(ours, expected, **close)


# Numerical checks


def test_gradcheck(one_gate: Sample) -> None:
    if one_gate.call.op.name == "coded_forward":
        pytest.skip("its derivative is a code, and not the slope of its values")
    assert gradcheck(
        floating(one_gate.ours),
        one_gate.leaves(),
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=not one_gate.call.is_random,  # which vmap refuses
    )


def test_gradgradcheck(one_gate: Sample) -> None:
    assert gradgradcheck(
        floating(one_gate.ours),
        one_gate.leaves(),
        check_fwd_over_rev=True,
        check_rev_over_rev=True,
        check_batched_grad=True,
    )


# Equal to the reference


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_derivatives(sample: Sample, order: int) -> None:
    def derivative(f: Function) -> Results:
        inputs = sample.leaves()
        terms = floating(f)(*inputs)
        for _ in range(order):
            total = sum((t * weights(t)).sum() for t in terms)
            terms = torch.autograd.grad(
                total, inputs, create_graph=True, allow_unused=True, materialize_grads=True
            )
            if not any(t.requires_grad for t in terms):  # it is linear
                break
        return terms

    assert_close(derivative(sample.ours), derivative(sample.expected))


def test_the_tail_has_relative_accuracy(sample: Sample) -> None:
    if "x" not in sample.call.tensors or sample.call.op.family in ("soi", "coded"):
        pytest.skip("has no tail")
    named = sample.named()
    named["x"] = named["x"] - 9
    shifted = Sample(sample.call, sample.gate, list(named.values()))
    place = sample.call.floating.index("x")

    def derivatives(f: Function) -> list[Tensor]:
        leaves = shifted.leaves()
        t, found = f(*leaves)[0].narrow(-1, 0, len(POINTS[0])), []
        for _ in range(2):
            (t,) = torch.autograd.grad(t.sum(), leaves[place], create_graph=True)
            found.append(t[..., : len(POINTS[0])])
        return found

    expected = derivatives(shifted.expected)
    assert all(t.abs().max() > 0 for t in expected)
    torch.testing.assert_close(derivatives(shifted.ours), expected, rtol=1e-9, atol=0)


def all_of(n: int) -> tuple[int, ...]:
    return tuple(range(n))


SAME = {"randomness": "same"}
TRANSFORMS: dict[str, Callable[[Function, int], Callable]] = {
    "grad": lambda f, n: grad(weighted(f), all_of(n)),
    "hessian": lambda f, n: jacfwd(grad(weighted(f), all_of(n)), all_of(n), **SAME),
    "jacrev": lambda f, n: jacrev(floating(f), all_of(n)),
    "jacfwd": lambda f, n: jacfwd(floating(f), all_of(n), **SAME),
    "reverse over forward": lambda f, n: grad(
        lambda *t: weighted(lambda *s: (jvp(weighted(f), s, tuple(map(weights, s)))[1],))(*t),
        all_of(n),
    ),
    "forward over forward": lambda f, n: jacfwd(jacfwd(weighted(f), **SAME), **SAME),
    "reverse over reverse": lambda f, n: jacrev(grad(weighted(f), all_of(n)), all_of(n)),
    "jvp": lambda f, n: lambda *t: jvp(floating(f), t, tuple(map(weights, t))),
    "vjp": lambda f, n: (
        lambda *t: vjp(floating(f), *t)[1](tuple(weights(y) for y in floating(f)(*t)))
    ),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_function_transforms(one_gate: Sample, transform: str) -> None:
    tensors = one_gate.floating
    ours, expected = (
        TRANSFORMS[transform](f, len(tensors))(*tensors) for f in (one_gate.ours, one_gate.expected)
    )
    assert_close(ours, expected)


def test_hessian_is_torchs(device: str) -> None:
    """torch.func.hessian itself, once."""
    sample = at_points(PUBLIC_CALLS[0], PUBLIC_CALLS[0].gates[0], device)
    ours, expected = (
        hessian(weighted(f))(*sample.floating) for f in (sample.ours, sample.expected)
    )
    assert_close(ours, expected)


def test_one_tangent_alone(one_of_two: tuple[Sample, int]) -> None:
    sample, place = one_of_two

    def tangent(f: Function) -> Tensor:
        inputs = list(sample.floating)
        with forward_ad.dual_level():
            inputs[place] = forward_ad.make_dual(inputs[place], weights(inputs[place]))
            return forward_ad.unpack_dual(f(*inputs)[0]).tangent

    assert_close(tangent(sample.ours), tangent(sample.expected))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_one_input_alone_requires_grad(one_of_two: tuple[Sample, int], order: int) -> None:
    sample, place = one_of_two

    def derivative(f: Function) -> Tensor:
        inputs = [t.clone() for t in sample.floating]
        leaf = inputs[place].requires_grad_()
        (t,) = f(*inputs)
        for _ in range(order):
            if not t.requires_grad:  # it is linear
                break
            (t,) = torch.autograd.grad((t * weights(t)).sum(), leaf, create_graph=True)
        return t

    assert_close(derivative(sample.ours), derivative(sample.expected))


def test_the_input_that_does_not_require_grad_gets_none(one_of_two: tuple[Sample, int]) -> None:
    sample, place = one_of_two
    inputs = [t.clone() for t in sample.floating]
    inputs[place].requires_grad_()
    sample.ours(*inputs)[0].sum().backward()
    assert [t.grad is not None for t in inputs] == [i == place for i in range(len(inputs))]


@pytest.mark.parametrize("shape", [(3,), (1, 3), (2, 4, 3), (2, 1, 4, 3)], ids=str)
@pytest.mark.parametrize("call", PUBLIC_CALLS, ids=str)
def test_any_number_of_dimensions(call: Call, shape: tuple[int, ...], device: str) -> None:
    """First and second derivatives, the latter as a gradient penalty takes them."""
    sample = call.sample(shape, lambda *s: torch.randn(s, dtype=torch.float64, device=device))

    def gradients(f: Function) -> Results:
        inputs = sample.leaves()
        first = torch.autograd.grad(weighted(f)(*inputs), inputs, create_graph=True)
        penalty = sum((t**2).sum() for t in first)
        if not penalty.requires_grad:
            return first
        return first + torch.autograd.grad(
            penalty, inputs, allow_unused=True, materialize_grads=True
        )

    assert_close(gradients(sample.ours), gradients(sample.expected))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("call", PUBLIC_CALLS, ids=str)
def test_gradients_have_the_dtype_of_their_inputs(
    call: Call, dtype: torch.dtype, device: str
) -> None:
    """With the expanded gradient that a sum's backward makes."""
    sample = at_points(call, call.gates[-1], device)
    sample = Sample(call, sample.gate, [t.to(dtype) for t in sample.tensors])
    ours, expected = sample.leaves(), sample.leaves(torch.float64)
    sample.ours(*ours)[0].sum().backward()
    sample.expected(*expected)[0].sum().backward()
    eps = torch.finfo(dtype).eps
    for t, e in zip(ours, expected, strict=True):
        assert t.grad.dtype == dtype
        torch.testing.assert_close(t.grad.double(), e.grad, rtol=2 * eps, atol=4 * eps)
