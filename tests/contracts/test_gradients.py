"""Derivatives of every order, in every way that PyTorch takes them, equal the reference's.

All in float64, where the reference is accurate to a few ULP.
"""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import grad, jacfwd, jacrev, jvp, vjp

from tests.calls import CALLS, DTYPES, PUBLIC_CALLS, Call, Results, Sample, Shape, normal
from tests.cases import each

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


def with_last_gate(call: Call, device: str) -> Sample:
    return at_points(call, call.gates[-1], device)


# The operands of the public operators that have several.
ONE_OF_TWO = [(c, name) for c in PUBLIC_CALLS for name in c.floating if len(c.floating) > 1]


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


def derivatives(
    f: Function, leaves: Sequence[Tensor], count: int, inputs: Sequence[Tensor] = ()
) -> list[Results]:
    """Of order 1, 2, ..., each of the one before, until one is constant. The inputs are the leaves
    unless given."""
    terms, found = floating(f)(*(inputs or leaves)), []
    while len(found) < count and any(t.requires_grad for t in terms):
        total = sum((t * weights(t)).sum() for t in terms)
        terms = torch.autograd.grad(
            total, leaves, create_graph=True, allow_unused=True, materialize_grads=True
        )
        found.append(terms)
    return found


# Numerical checks


@each(call=CALLS)
def test_gradcheck(call: Call, device: str) -> None:
    if call.op.name == "coded_forward":
        return  # its derivative is a code, and not the slope of its values
    sample = with_last_gate(call, device)
    assert gradcheck(
        floating(sample.ours),
        sample.leaves(),
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=not sample.call.is_random,  # which vmap refuses
    )


@each(call=CALLS)
def test_gradgradcheck(call: Call, device: str) -> None:
    sample = with_last_gate(call, device)
    assert gradgradcheck(
        floating(sample.ours),
        sample.leaves(),
        check_fwd_over_rev=True,
        check_rev_over_rev=True,
        check_batched_grad=True,
    )


# Equal to the reference


@each(call=CALLS)
def test_derivatives(call: Call, gate: str, device: str) -> None:
    if gate not in call.gates:
        return
    sample = at_points(call, gate, device)
    ours, expected = (derivatives(f, sample.leaves(), 4) for f in (sample.ours, sample.expected))
    assert_close(ours, expected)


HAVE_TAILS = [c for c in CALLS if "x" in c.tensors and c.op.family not in ("soi", "coded")]


@each(call=HAVE_TAILS)
def test_the_tail_has_relative_accuracy(call: Call, gate: str, device: str) -> None:
    if gate not in call.gates:
        return
    named = at_points(call, gate, device).named()
    named["x"] = named["x"] - 9
    shifted = Sample(call, gate, list(named.values()))
    place, count = call.floating.index("x"), len(POINTS[0])

    def in_tail(f: Function) -> list[Tensor]:
        leaves = shifted.leaves()
        found = derivatives(lambda *t: (f(*t)[0].narrow(-1, 0, count),), [leaves[place]], 2, leaves)
        return [dx.narrow(-1, 0, count) for (dx,) in found]

    expected = in_tail(shifted.expected)
    assert all(t.abs().max() > 0 for t in expected)
    torch.testing.assert_close(in_tail(shifted.ours), expected, rtol=1e-9, atol=0)


def all_of(n: int) -> tuple[int, ...]:
    return tuple(range(n))


SAME = {"randomness": "same"}
TRANSFORMS: dict[str, Callable[[Function, int], Callable]] = {
    "grad": lambda f, n: grad(weighted(f), all_of(n)),
    # torch.func.hessian, which takes no `randomness`.
    "hessian": lambda f, n: jacfwd(jacrev(weighted(f), all_of(n)), all_of(n), **SAME),
    "jacrev": lambda f, n: jacrev(floating(f), all_of(n)),
    "jacfwd": lambda f, n: jacfwd(floating(f), all_of(n), **SAME),
    "reverse over forward": lambda f, n: grad(
        lambda *t: jvp(weighted(f), t, tuple(map(weights, t)))[1], all_of(n)
    ),
    "forward over forward": lambda f, n: jacfwd(jacfwd(weighted(f), **SAME), **SAME),
    "reverse over reverse": lambda f, n: jacrev(grad(weighted(f), all_of(n)), all_of(n)),
    "jvp": lambda f, n: lambda *t: jvp(floating(f), t, tuple(map(weights, t))),
    "vjp": lambda f, n: (
        lambda *t: vjp(floating(f), *t)[1](tuple(weights(y) for y in floating(f)(*t)))
    ),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@each(call=CALLS)
def test_function_transforms(call: Call, transform: str, device: str) -> None:
    sample = with_last_gate(call, device)
    tensors = sample.floating
    ours, expected = (
        TRANSFORMS[transform](f, len(tensors))(*tensors) for f in (sample.ours, sample.expected)
    )
    assert_close(ours, expected)


@each(operand=ONE_OF_TWO)
def test_one_tangent_alone(operand: tuple[Call, str], device: str) -> None:
    call, name = operand
    sample, place = with_last_gate(call, device), call.floating.index(name)

    def tangent(f: Function) -> Tensor:
        inputs = list(sample.floating)
        with forward_ad.dual_level():
            inputs[place] = forward_ad.make_dual(inputs[place], weights(inputs[place]))
            return forward_ad.unpack_dual(f(*inputs)[0]).tangent

    assert_close(tangent(sample.ours), tangent(sample.expected))


@each(operand=ONE_OF_TWO)
def test_one_input_alone_requires_grad(operand: tuple[Call, str], device: str) -> None:
    """And it alone gets a gradient."""
    call, name = operand
    sample, place = with_last_gate(call, device), call.floating.index(name)

    def of_one(f: Function) -> list[Results]:
        inputs = [t.clone() for t in sample.floating]
        return derivatives(f, [inputs[place].requires_grad_()], 3, inputs)

    assert_close(of_one(sample.ours), of_one(sample.expected))
    inputs = [t.clone() for t in sample.floating]
    inputs[place].requires_grad_()
    sample.ours(*inputs)[0].sum().backward()
    assert [t.grad is not None for t in inputs] == [i == place for i in range(len(inputs))]


@each(call=PUBLIC_CALLS, shape=[(3,), (1, 3), (2, 4, 3), (2, 1, 4, 3)])
def test_any_number_of_dimensions(call: Call, shape: Shape, device: str) -> None:
    """First and second derivatives, the latter as a gradient penalty takes them."""
    sample = call.sample(shape, lambda *s: normal(*s, device=device))

    def with_penalty(f: Function) -> list[Results]:
        leaves = sample.leaves()
        found = derivatives(f, leaves, 1)
        penalty = sum((t**2).sum() for t in found[0])
        if penalty.requires_grad:
            options = {"allow_unused": True, "materialize_grads": True}
            found.append(torch.autograd.grad(penalty, leaves, **options))
        return found

    assert_close(with_penalty(sample.ours), with_penalty(sample.expected))


@each(call=PUBLIC_CALLS, dtype=DTYPES[1:])
def test_gradients_have_the_dtype_of_their_inputs(
    call: Call, dtype: torch.dtype, device: str
) -> None:
    """With the expanded gradient that a sum's backward makes."""
    sample = with_last_gate(call, device)
    sample = Sample(call, sample.gate, [t.to(dtype) for t in sample.tensors])
    ours, expected = sample.leaves(), sample.leaves(torch.float64)
    sample.ours(*ours)[0].sum().backward()
    sample.expected(*expected)[0].sum().backward()
    eps = torch.finfo(dtype).eps
    for t, e in zip(ours, expected, strict=True):
        assert t.grad.dtype == dtype
        torch.testing.assert_close(t.grad.double(), e.grad, rtol=2 * eps, atol=4 * eps)
