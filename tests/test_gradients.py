"""Derivatives of every order, in every way that PyTorch takes them, equal the reference's autograd.

All in float64, where the reference is good to a few units in the last place.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils.checkpoint import checkpoint

from gelu_kernels import functional, reference

ops = torch.ops.gelu_kernels

GATES = {"none": "normal", "tanh": "normal_tanh", "sigmoid": "logistic_1702"}
# Around zero, on both sides of the derivative's root near -0.752, and in both tails.
POINTS = [[-8.0, -5.0, -1.3], [-0.76, -0.75, -0.3], [-1e-3, 1e-3, 0.3], [0.9, 2.3, 4.5]]
BIAS = [0.01, -0.01, 0.02]
# The reference's higher derivatives cancel in the right tail, where s (1 - s) is small.
close = {"rtol": 1e-10, "atol": 1e-12}

# vmap of an operator without a batching rule is a loop, with this warning.
pytestmark = pytest.mark.filterwarnings("error:There is a performance drop")


@dataclass
class Case:
    ours: Callable[..., Tensor]
    reference: Callable[..., Tensor]
    inputs: tuple[Tensor, ...]

    def leaves(self) -> tuple[Tensor, ...]:
        return tuple(t.detach().clone().requires_grad_() for t in self.inputs)


def make_case(approximate: str, biased: bool, device: str) -> Case:
    x = torch.tensor(POINTS, dtype=torch.float64, device=device)
    bias = torch.tensor(BIAS, dtype=torch.float64, device=device)
    if biased:
        return Case(
            lambda x, bias: functional.bias_gelu(x, bias, approximate=approximate),
            lambda x, bias: reference.gelu(x + bias, approximate),
            (x, bias),
        )
    return Case(
        lambda x: functional.gelu(x, approximate=approximate),
        lambda x: reference.gelu(x, approximate),
        (x,),
    )


@pytest.fixture(
    params=list(product(reference.gates, [False, True])),
    ids=lambda p: f"{p[0]}-{'x+bias' if p[1] else 'x'}",
)
def case(request, device) -> Case:
    return make_case(*request.param, device)


@pytest.fixture(params=reference.gates)
def biased_case(request, device) -> Case:
    return make_case(request.param, True, device)


def weights(like: Tensor) -> Tensor:
    return torch.linspace(0.5, 1.5, like.numel(), dtype=like.dtype, device=like.device).view_as(
        like
    )


def weighted(f: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def loss(*inputs: Tensor) -> Tensor:
        y = f(*inputs)
        return (y * weights(y)).sum()

    return loss


def gradients(f: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(weighted(f)(*inputs), inputs)


def assert_close(ours, expected) -> None:
    torch.testing.assert_close(ours, expected, **close)


# Numerical checks


def test_gradcheck(case, fast_mode):
    assert gradcheck(
        case.ours,
        case.leaves(),
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
        fast_mode=fast_mode,
    )


def test_gradgradcheck(case, fast_mode):
    assert gradgradcheck(
        case.ours,
        case.leaves(),
        check_fwd_over_rev=True,
        check_rev_over_rev=True,
        check_batched_grad=True,
        fast_mode=fast_mode,
    )


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("gate", list(GATES.values()))
@pytest.mark.parametrize("op", ["gate_backward", "gate_backward_bias", "gate_double_backward"])
def test_core_operators(op, gate, biased, device, fast_mode):
    if op == "gate_backward_bias" and not biased:
        pytest.skip("takes a bias")
    x = torch.tensor(POINTS, dtype=torch.float64, device=device)
    bias = [torch.tensor(BIAS, dtype=torch.float64, device=device)] if biased else []
    upstream = [weights(x), weights(x) - 0.7] if op == "gate_double_backward" else [weights(x)]

    def call(*tensors: Tensor):
        return getattr(ops, op)(*tensors, *([] if biased else [None]), gate)

    inputs = [t.clone().requires_grad_() for t in [*upstream, x, *bias]]
    assert gradcheck(
        call,
        inputs,
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
        fast_mode=fast_mode,
    )
    assert gradgradcheck(call, inputs, check_fwd_over_rev=True, fast_mode=fast_mode)


def test_gradient_through_the_bias_gradient_alone(device):
    x, bias = make_case("none", True, device).leaves()
    dy = weights(x).requires_grad_()
    _, dbias = ops.gate_backward_bias(dy, x, bias, "normal")
    ours = torch.autograd.grad(weighted(lambda t: t)(dbias), (dy, x, bias))
    y = reference.gelu(x + bias)
    (expected,) = torch.autograd.grad(y, bias, dy, create_graph=True)
    assert_close(ours, torch.autograd.grad(weighted(lambda t: t)(expected), (dy, x, bias)))


# Equal to the reference


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_derivatives(case, order):
    def derivative(f: Callable[..., Tensor]) -> tuple[Tensor, ...]:
        inputs = case.leaves()
        terms = (f(*inputs),)
        for _ in range(order):
            total = sum((t * weights(t)).sum() for t in terms)
            terms = torch.autograd.grad(total, inputs, create_graph=True)
        return terms

    assert_close(derivative(case.ours), derivative(case.reference))


def test_the_tail_has_relative_accuracy(case):
    shifted = (case.inputs[0] - 9, *case.inputs[1:])
    for order in (1, 2):

        def derivative(f: Callable[..., Tensor], order: int = order) -> Tensor:
            x = shifted[0].clone().requires_grad_()
            t = f(x, *shifted[1:])
            for _ in range(order):
                (t,) = torch.autograd.grad(t.sum(), x, create_graph=True)
            return t

        expected = derivative(case.reference)
        assert expected.abs().max() > 0
        torch.testing.assert_close(derivative(case.ours), expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    "transform",
    [
        lambda f, n: grad(weighted(f), argnums=tuple(range(n))),
        lambda f, n: hessian(weighted(f), argnums=tuple(range(n))),
        lambda f, n: jacrev(f, argnums=tuple(range(n))),
        lambda f, n: jacfwd(f, argnums=tuple(range(n))),
        lambda f, n: jacfwd(grad(weighted(f), argnums=tuple(range(n))), argnums=tuple(range(n))),
        lambda f, n: grad(lambda *t: weighted(jacfwd(f))(*t), argnums=tuple(range(n))),
        lambda f, n: jacfwd(jacfwd(f)),
        lambda f, n: vmap(grad(weighted(f)), in_dims=(0,) + (None,) * (n - 1)),
    ],
    ids=[
        "grad",
        "hessian",
        "jacrev",
        "jacfwd",
        "forward over reverse",
        "reverse over forward",
        "forward over forward",
        "gradients of examples",
    ],
)
def test_function_transforms(case, transform):
    n = len(case.inputs)
    ours, expected = (transform(f, n)(*case.inputs) for f in (case.ours, case.reference))
    assert_close(ours, expected)


def test_jvp_and_vjp(case):
    tangents = tuple(weights(t) for t in case.inputs)
    assert_close(jvp(case.ours, case.inputs, tangents), jvp(case.reference, case.inputs, tangents))
    ours, expected = (vjp(f, *case.inputs)[1] for f in (case.ours, case.reference))
    dy = weights(case.inputs[0])
    assert_close(ours(dy), expected(dy))


@pytest.mark.parametrize("dual", [0, 1], ids=["x", "bias"])
def test_one_tangent_alone(biased_case, dual):
    def tangent(f: Callable[..., Tensor]) -> Tensor:
        inputs = list(biased_case.inputs)
        with forward_ad.dual_level():
            inputs[dual] = forward_ad.make_dual(inputs[dual], weights(inputs[dual]))
            return forward_ad.unpack_dual(f(*inputs)).tangent

    assert_close(tangent(biased_case.ours), tangent(biased_case.reference))


@pytest.mark.parametrize("wanted", [0, 1], ids=["x", "bias"])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_one_input_alone_requires_grad(biased_case, wanted, order):
    def derivative(f: Callable[..., Tensor]) -> Tensor:
        inputs = [t.clone() for t in biased_case.inputs]
        leaf = inputs[wanted].requires_grad_()
        t = f(*inputs)
        for _ in range(order):
            assert t.requires_grad
            (t,) = torch.autograd.grad((t * weights(t)).sum(), leaf, create_graph=True)
        return t

    expected = derivative(biased_case.reference)
    assert expected.abs().max() > 1e-3
    assert_close(derivative(biased_case.ours), expected)


@pytest.mark.parametrize("shape", [(3,), (1, 3), (2, 4, 3), (2, 1, 4, 3)], ids=str)
def test_bias_of_any_number_of_dimensions(biased_case, shape):
    x = torch.linspace(-2, 2, torch.Size(shape).numel(), dtype=torch.float64).view(shape)
    case = Case(
        biased_case.ours,
        biased_case.reference,
        (x.to(biased_case.inputs[0]), biased_case.inputs[1]),
    )

    def first_and_second(f: Callable[..., Tensor]) -> tuple[Tensor, ...]:
        inputs = case.leaves()
        first = torch.autograd.grad(weighted(f)(*inputs), inputs, create_graph=True)
        return first + torch.autograd.grad(sum((t**2).sum() for t in first), inputs)

    assert_close(first_and_second(case.ours), first_and_second(case.reference))


def test_the_input_that_does_not_require_grad_gets_none(biased_case):
    for wanted in (0, 1):
        inputs = [t.clone() for t in biased_case.inputs]
        inputs[wanted].requires_grad_()
        biased_case.ours(*inputs).sum().backward()
        assert inputs[wanted].grad is not None
        assert inputs[1 - wanted].grad is None


def test_gradient_penalty(biased_case):
    def gradient_of_penalty(f: Callable[..., Tensor]) -> tuple[Tensor, ...]:
        x, bias = biased_case.leaves()
        first = torch.autograd.grad(weighted(f)(x, bias), (x, bias), create_graph=True)
        sum((t**2).sum() for t in first).backward()
        return x.grad, bias.grad

    assert_close(gradient_of_penalty(biased_case.ours), gradient_of_penalty(biased_case.reference))


def test_expanded_grad_output(case):
    ours, expected = case.leaves(), case.leaves()
    case.ours(*ours).sum().backward()
    case.reference(*expected).sum().backward()
    assert_close([t.grad for t in ours], [t.grad for t in expected])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_gradients_have_the_dtype_of_their_inputs(case, dtype):
    ours = [t.to(dtype).requires_grad_() for t in case.inputs]
    expected = [t.detach().double().requires_grad_() for t in ours]
    case.ours(*ours).sum().backward()
    case.reference(*expected).sum().backward()
    eps = torch.finfo(dtype).eps
    for t, e in zip(ours, expected, strict=True):
        assert t.grad.dtype == dtype
        torch.testing.assert_close(t.grad.double(), e.grad, rtol=eps, atol=eps)


# vmap


@pytest.mark.parametrize("approximate", reference.gates)
@pytest.mark.parametrize(
    "in_dims, x_shape, bias_shape",
    [
        ((0, None), (4, 2, 3), (3,)),
        ((1, None), (2, 4, 3), (3,)),
        ((-1, None), (2, 3, 4), (3,)),
        ((None, 0), (2, 3), (4, 3)),
        ((None, 1), (2, 3), (3, 4)),
        ((0, 0), (4, 2, 3), (4, 3)),
        ((1, 1), (2, 4, 3), (3, 4)),
        ((2, 0), (2, 3, 4), (4, 3)),
        ((0, None), (4, 3), (3,)),
        ((0, 0), (4, 3), (4, 3)),
        ((0, 0), (0, 2, 3), (0, 3)),
    ],
)
def test_vmap_of_bias_gelu(in_dims, x_shape, bias_shape, approximate, device):
    generator = torch.Generator(device).manual_seed(0)
    x = torch.randn(x_shape, dtype=torch.float64, generator=generator, device=device)
    bias = torch.randn(bias_shape, dtype=torch.float64, generator=generator, device=device)
    case = make_case(approximate, True, device)
    for f in (lambda f: f, lambda f: grad(weighted(f), argnums=(0, 1)), jacfwd):
        ours = vmap(f(case.ours), in_dims=in_dims)(x, bias)
        assert_close(ours, vmap(f(case.reference), in_dims=in_dims)(x, bias))


@pytest.mark.parametrize("approximate", reference.gates)
@pytest.mark.parametrize("in_dim, shape", [(0, (4, 3)), (1, (3, 4)), (-1, (3, 2, 4)), (0, (4,))])
def test_vmap_of_gelu(in_dim, shape, approximate, device):
    x = torch.linspace(-3, 3, torch.Size(shape).numel(), dtype=torch.float64, device=device)
    x = x.view(shape)
    case = make_case(approximate, False, device)
    for f in (lambda f: f, lambda f: grad(weighted(f)), lambda f: hessian(weighted(f))):
        assert_close(vmap(f(case.ours), in_dim)(x), vmap(f(case.reference), in_dim)(x))


@pytest.mark.parametrize("outer, inner", list(product([(0, None), (None, 0), (0, 0)], repeat=2)))
def test_nested_vmap(outer, inner, device):
    x_shape = [n for n, dims in ((5, outer), (4, inner)) if dims[0] == 0]
    bias_shape = [n for n, dims in ((5, outer), (4, inner)) if dims[1] == 0]
    generator = torch.Generator(device).manual_seed(0)
    x, bias = (
        torch.randn(*shape, 3, dtype=torch.float64, generator=generator, device=device)
        for shape in ([*x_shape, 2], bias_shape)
    )
    case = make_case("none", True, device)
    for f in (lambda f: f, lambda f: grad(weighted(f), argnums=(0, 1))):
        ours, expected = (
            vmap(vmap(f(g), in_dims=inner), in_dims=outer)(x, bias)
            for g in (case.ours, case.reference)
        )
        assert_close(ours, expected)


@pytest.mark.parametrize("batched", list(product([False, True], repeat=3)))
def test_vmap_of_backward(batched, device):
    """Each of dy, x and bias batched or not."""
    if not any(batched):
        pytest.skip("vmap needs a batch")
    generator = torch.Generator(device).manual_seed(0)
    options = {"dtype": torch.float64, "generator": generator, "device": device}
    tensors = [
        torch.randn((4, *shape) if b else shape, **options)
        for b, shape in zip(batched, [(2, 3), (2, 3), (3,)], strict=True)
    ]
    in_dims = tuple(0 if b else None for b in batched)

    def expected(dy: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        return vjp(lambda x, bias: reference.gelu(x + bias), x, bias)[1](dy)

    def backward_bias(*t: Tensor) -> tuple[Tensor, Tensor]:
        return ops.gate_backward_bias(*t, "normal")

    assert_close(vmap(backward_bias, in_dims)(*tensors), vmap(expected, in_dims)(*tensors))
    dx = vmap(lambda *t: ops.gate_backward(*t, "normal"), in_dims)(*tensors)
    assert_close(dx, vmap(expected, in_dims)(*tensors)[0])


# What autograd saves


def test_nothing_saved_is_modified(case):
    inputs = case.leaves()
    y = case.ours(*inputs)
    value, dy = y.detach().clone(), weights(y)
    y.backward(dy)
    torch.testing.assert_close(list(inputs), list(case.inputs), rtol=0, atol=0)
    torch.testing.assert_close(y, value, rtol=0, atol=0)
    torch.testing.assert_close(dy, weights(y), rtol=0, atol=0)


def test_modifying_a_saved_tensor_raises(case):
    for k in range(len(case.inputs)):
        inputs = [t.clone() for t in case.leaves()]
        y = case.ours(*inputs)
        with torch.no_grad():
            inputs[k].mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_the_result_may_be_modified(case):
    inputs, expected = case.leaves(), case.leaves()
    case.ours(*inputs).mul_(3).sum().backward()
    case.reference(*expected).mul(3).sum().backward()
    assert_close([t.grad for t in inputs], [t.grad for t in expected])


def test_saved_tensor_hooks(case):
    packed = []

    def pack(t: Tensor) -> Tensor:
        packed.append(t)
        return t.clone()

    inputs, leaves = case.leaves(), case.leaves()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t * 1):
        y = case.ours(*inputs)
    assert [t.data_ptr() for t in packed] == [t.data_ptr() for t in inputs]
    dy = weights(y)
    y.backward(dy)
    assert_close(tuple(t.grad for t in inputs), gradients(case.reference, leaves))


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint(case, reentrant):
    inputs = case.leaves()
    loss = weighted(lambda *t: checkpoint(case.ours, *t, use_reentrant=reentrant))(*inputs)
    loss.backward()  # the reentrant kind takes no autograd.grad
    assert_close(tuple(t.grad for t in inputs), gradients(case.reference, case.leaves()))


def test_retained_and_freed_graphs(case):
    inputs = case.leaves()
    y = case.ours(*inputs)  # no other operator may be the one that raises
    dy = weights(y)
    expected = gradients(case.reference, case.leaves())
    assert_close(torch.autograd.grad(y, inputs, dy, retain_graph=True), expected)
    assert_close(torch.autograd.grad(y, inputs, dy), expected)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(y, inputs, dy)


def test_freed_graph_of_second_order(case):
    x, *bias = case.leaves()
    y = case.ours(x, *bias)
    dy = weights(y)
    (dx,) = torch.autograd.grad(y, x, dy, create_graph=True)
    torch.autograd.grad(dx, x, dy)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(dx, x, dy)


def test_no_graph_is_recorded_when_none_is_wanted(case):
    inputs = case.leaves()
    with torch.no_grad():
        assert case.ours(*inputs).grad_fn is None
    with torch.inference_mode():
        y = case.ours(*inputs)
    assert y.is_inference() and not y.requires_grad
    assert_close(y.clone(), case.reference(*case.inputs))
    assert not case.ours(*case.inputs).requires_grad


def test_a_long_chain_is_freed_without_recursion():
    x = torch.zeros(1, requires_grad=True)
    y = x
    for _ in range(200_000):
        y = functional.gelu(y)
    assert y.requires_grad
    del y
