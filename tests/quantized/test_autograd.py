"""Gradients go straight through a cast to eight bits, in every mode that has gradients. And the
quantised operators under torch.compile, export and autocast."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from gelu_kernels import functional
from gelu_kernels.functional import Quantized
from tests import bits
from tests.calls import AsModule
from tests.cases import each

Function = Callable[..., object]
# An operator of x, a bias and up, quantised and not.
PAIRS: dict[str, tuple[Function, Function]] = {
    "gate": (
        lambda x, bias, up, **k: functional.quantized_gate(x, gate="cauchy", **k),
        lambda x, bias, up: functional.gate(x, gate="cauchy"),
    ),
    "biased gate": (
        lambda x, bias, up, **k: functional.quantized_gate(x, bias, **k),
        lambda x, bias, up: functional.gate(x, bias),
    ),
    "GLU": (
        lambda x, bias, up, **k: functional.quantized_swiglu(x, up, **k),
        lambda x, bias, up: functional.swiglu(x, up),
    ),
    "GLU of halves": (
        lambda x, bias, up, **k: functional.quantized_geglu(torch.cat([x, up], -1), **k),
        lambda x, bias, up: functional.geglu(torch.cat([x, up], -1)),
    ),
}


def arguments(dtype: torch.dtype) -> list[Tensor]:
    shapes = (2, 32, 96), (96,), (2, 32, 96)
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]


def gradients(results: Tensor | tuple[Tensor, ...], wrt: list[Tensor], given: object) -> list:
    return list(torch.autograd.grad(results, wrt, given, allow_unused=True))


def equal(a: list[Tensor | None], b: list[Tensor | None]) -> bool:
    return all((s is None and t is None) or torch.equal(s, t) for s, t in zip(a, b, strict=True))


@each(pair=PAIRS, dtype=[torch.bfloat16, torch.float32])
def test_straight_through(pair: str, dtype: torch.dtype) -> None:
    """Of the data along rows, columns or both, where they add up: bit for bit the gradients of the
    unquantised operator."""
    quantise, plain = PAIRS[pair]
    tensors = arguments(dtype)
    dy, of_columns = torch.randn(2, 32, 96).to(dtype), torch.randn(96, 64).to(dtype)
    transposed = of_columns.t().reshape(dy.shape)

    def expected(dy: Tensor) -> list[Tensor | None]:
        return gradients(plain(*tensors), tensors, dy)

    row = functional.dequantize(*quantise(*tensors), dtype=dtype)
    assert equal(gradients(row, tensors, dy), expected(dy))
    column = functional.dequantize(*quantise(*tensors, along="column"), dtype=dtype)
    assert equal(gradients(column, tensors, of_columns), expected(transposed))
    both = [functional.dequantize(*q, dtype=dtype) for q in quantise(*tensors, along="both")]
    assert equal(gradients(both, tensors, (dy, of_columns)), expected(dy + transposed))


@each(pair=PAIRS)
def test_scales_have_no_gradient(pair: str) -> None:
    quantise, _ = PAIRS[pair]
    for results in quantise(*arguments(torch.float32), along="both"):
        assert results.data.requires_grad and not results.scale.requires_grad
    amax = quantise(*arguments(torch.float32), scaling="TensorWise", scale=torch.ones(())).amax
    assert not amax.requires_grad


@each(dtype=[torch.bfloat16, torch.float32])
def test_other_consumers(dtype: torch.dtype) -> None:
    """A user's function, such as a linear layer by scaled_mm, passes back a gradient in full."""

    class Consumer(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, data: Tensor, scale: Tensor) -> Tensor:
            return data.to(dtype)

        @staticmethod
        def backward(ctx: object, grad: Tensor) -> tuple[Tensor, None]:
            return grad, None

    x, *_ = arguments(dtype)
    dy = torch.randn_like(x)
    result = Consumer.apply(*functional.quantized_gate(x))
    assert equal(gradients(result, [x], dy), gradients(functional.gelu(x), [x], dy))


@each(dtype=[torch.bfloat16, torch.float32])
def test_saved_in_eight_bits(dtype: torch.dtype) -> None:
    """Backward computes with the numbers that the eight bits stand for, and saves no more."""
    x, bias, up = arguments(dtype)
    forms = [functional.quantized_gate(t.detach()) for t in (x, up)]  # any numbers
    as_saved = [functional.dequantize(*f, dtype=dtype).requires_grad_() for f in forms]
    with functional.save_quantized((x, forms[0]), (up, forms[1])):
        result = functional.dequantize(*functional.quantized_swiglu(x, up), dtype=dtype)
    dy = torch.randn_like(x)
    expected = gradients(functional.swiglu(*as_saved), as_saved, dy)
    assert equal(gradients(result, [x, up], dy), expected)
    kept: list[Tensor] = []

    def keep(t: Tensor) -> Tensor:
        kept.append(t)
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        functional.quantized_swiglu(x, up)
    assert sum(t.nbytes for t in kept) == x.nbytes + up.nbytes


def gelu_gradient(x: Tensor) -> Tensor:
    """In float64."""
    x = x.detach().double()
    density = torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi)
    return (1 + torch.erf(x / math.sqrt(2))) / 2 + x * density


def wrong(x: Tensor) -> Quantized:
    """Numbers far from `x`, in eight bits: a gradient tells which was saved."""
    return functional.quantized_gate(x.detach() + 10)


OTHER_VIEWS = {
    "transposed": lambda x: x.t(),
    "overlapping rows": lambda x: x.as_strided((32, 32), (16, 1)),
    "same address": lambda x: x[:16],
    "other offset": lambda x: x.as_strided((32, 32), (32, 1), 32),
}


@each(view=OTHER_VIEWS)
def test_other_views_are_saved_as_they_are(view: str) -> None:
    x = torch.randn(33, 32)[:32].requires_grad_()
    seen = OTHER_VIEWS[view](x)
    z = torch.randn(32, 8, requires_grad=True)
    with functional.save_quantized((x, wrong(x))):
        y, product = functional.gelu(seen), seen @ z
    (of_seen,) = torch.autograd.grad(y.sum(), seen)
    torch.testing.assert_close(of_seen.double(), gelu_gradient(seen), rtol=1e-5, atol=1e-5)
    (of_z,) = torch.autograd.grad(product.sum(), z)
    expected = seen.detach().sum(0)[:, None].expand(32, 8)
    torch.testing.assert_close(of_z, expected)


def test_the_same_numbers_by_another_name_are_saved_in_eight_bits() -> None:
    x = torch.randn(32, 32, requires_grad=True)
    form = wrong(x)
    for alias in (x.view(32, 32), x.detach().requires_grad_()):
        with functional.save_quantized((x, form)):
            y = functional.gelu(alias)
        (of_alias,) = torch.autograd.grad(y.sum(), alias)
        saved = functional.dequantize(*form, dtype=torch.float64)
        torch.testing.assert_close(of_alias.double(), gelu_gradient(saved), rtol=1e-5, atol=1e-5)


@each(change=["x", "alias", "view"])
def test_a_tensor_changed_in_place_is_saved_as_it_is(change: str) -> None:
    x = torch.randn(32, 32, requires_grad=True)
    changed = {"x": x, "alias": x.detach(), "view": x.detach()[3]}[change]
    with functional.save_quantized((x, wrong(x))):
        with torch.no_grad():
            changed.mul_(3)
        y = functional.gelu(x)
    (of_x,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(of_x.double(), gelu_gradient(x), rtol=1e-5, atol=1e-5)


def test_tensors_that_have_no_version_or_storage() -> None:
    """The context leaves an inference tensor and a sparse tensor alone."""
    form = wrong(torch.randn(32, 32))
    with torch.inference_mode():
        x = torch.randn(32, 32)
        with functional.save_quantized((x, form)):
            functional.gelu(x)
    dense = torch.randn(32, 32, requires_grad=True)
    with functional.save_quantized((dense, form)):
        torch.sparse.mm(torch.eye(32).to_sparse(), dense).sum().backward()
    assert torch.equal(dense.grad, torch.ones(32, 32))


def test_refused_derivatives() -> None:
    x, bias, up = arguments(torch.float32)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.detach(), torch.ones_like(x))
        with pytest.raises(NotImplementedError, match=r"^quantized_gate\(\): forward-mode AD"):
            functional.quantized_gate(dual)
        with pytest.raises(NotImplementedError, match=r"^quantized_swiglu\(\): forward-mode AD"):
            functional.quantized_swiglu(x.detach(), dual)
    dy = torch.ones_like(x)
    for call, name in (
        (lambda: functional.quantized_gate_backward(dy, x), "gate_backward"),
        (lambda: functional.quantized_gate_backward(dy, x.detach(), bias), "gate_backward"),
        (lambda: functional.quantized_glu_backward(dy, x, up, gate="normal"), "glu_backward"),
        (
            lambda: functional.quantized_glu_backward(dy, torch.cat([x, up], -1), gate="normal"),
            "glu_backward",
        ),
    ):
        with pytest.raises(NotImplementedError, match=rf"^quantized_{name}\(\): has no derivative"):
            call()
        with torch.no_grad():
            call()


def test_vmap_is_refused() -> None:
    x = torch.randn(3, 4, 32)
    for function in (functional.quantized_gate, functional.quantized_gate_backward):
        batched = [x] * (2 if function is functional.quantized_gate_backward else 1)
        with pytest.raises(NotImplementedError, match="vmap cannot batch it"):
            torch.vmap(function)(*batched)


def test_torch_func() -> None:
    x = torch.randn(4, 32)
    weight = torch.randn(4, 32)
    gradient = torch.func.grad(
        lambda x: (
            functional.dequantize(*functional.quantized_gate(x), dtype=x.dtype) * weight
        ).sum()
    )(x)
    assert torch.equal(gradient, torch.func.grad(lambda x: (functional.gate(x) * weight).sum())(x))


def loss(pair: str, *tensors: Tensor) -> Tensor:
    row, column = PAIRS[pair][0](*tensors, along="both")
    parts = [functional.dequantize(*q, dtype=torch.float32) for q in (row, column)]
    return parts[0].square().sum() + parts[1].sin().sum()


@each(lambda pair: pair != "gate", pair=PAIRS)
def test_compiled(pair: str) -> None:
    """In one graph, with sizes that change."""
    torch.compiler.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (32, 64):
        tensors = [torch.randn(rows, 64), torch.randn(64), torch.randn(rows, 64)]
        tensors = [t.requires_grad_() for t in tensors]
        value, own = loss(pair, *tensors), compiled(pair, *tensors)
        assert torch.equal(value, own)
        expected = gradients(value, tensors, None)
        assert equal(gradients(own, tensors, None), expected)


def test_a_gradient_in_eight_bits_is_refused() -> None:
    """torch rounds the gradient of a compiled function's data to eight bits: an error says so."""
    x = torch.randn(32, 64, requires_grad=True)
    with pytest.raises(Exception, match="dy must have the dtype of x"):
        data, _ = torch.compile(functional.quantized_gate, fullgraph=True, backend="aot_eager")(x)
        data.backward(torch.ones_like(data))


@pytest.mark.slow
def test_inductor() -> None:
    def function(x: Tensor) -> tuple[Quantized, Quantized]:
        return functional.quantized_gate(x * 2, along="both", gate="laplace")

    x = torch.randn(64, 96)
    for ours, compiled in zip(function(x), torch.compile(function, fullgraph=True)(x), strict=True):
        assert bits.same(ours.data, compiled.data) and bits.same(ours.scale, compiled.scale)


def test_exported() -> None:
    model = AsModule(lambda x: tuple(functional.quantized_swiglu(x, along="column")))
    rows = torch.export.Dim("blocks", max=1024) * 32
    x = torch.randn(64, 128)
    program = torch.export.export(model, (x,), dynamic_shapes=(({0: rows},),))
    other = torch.randn(96, 128)
    for ours, exported in zip(model(other), program.module()(other), strict=True):
        assert bits.same(ours, exported)


def test_autocast() -> None:
    """A parameter in float32 is cast to the dtype of x."""
    x, bias, up = (t.detach() for t in arguments(torch.float32))
    with torch.autocast("cpu", torch.bfloat16):
        biased = functional.quantized_gate(x.bfloat16(), bias)
        unit = functional.quantized_geglu(x.bfloat16(), up)
    expected = functional.quantized_gate(x.bfloat16(), bias.bfloat16())
    assert bits.same(biased.data, expected.data)
    expected = functional.quantized_geglu(x.bfloat16(), up.bfloat16())
    assert bits.same(unit.data, expected.data)
