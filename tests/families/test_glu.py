"""The gated linear unit: the accuracy of its products, one gradient alone, and products that
overflow in between."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from gelu_kernels import functional, reference
from gelu_kernels.operators.table import core
from tests.calls import DTYPES, GATES, normal
from tests.cases import each
from tests.oracles import oracle
from tests.oracles.oracle import DERIVATIVE, VALUE

ops = torch.ops.gelu_kernels
HALF = [torch.float16, torch.bfloat16]
FORWARD, BACKWARD = core("glu_forward"), core("glu_backward")


def run(dy: Tensor, x: Tensor, up: Tensor, gate: str) -> list[Tensor]:
    return [ops.glu_forward(x, up, None, gate), *ops.glu_backward(dy, x, up, None, gate)]


def assert_accurate(result: Tensor, factor: np.ndarray, of_gate: np.ndarray, bounds) -> None:
    """In units of the last place (wide dtypes: in eps), where the gate's value and the product are
    normal numbers. In 16 bits everywhere: no worse than with a rounding in between."""
    expected = factor * of_gate
    info = torch.finfo(result.dtype)
    finite = (np.abs(factor) <= torch.finfo(torch.float32).max) & (np.abs(expected) <= info.max)
    is_normal = finite & (np.abs(factor) >= torch.finfo(torch.float32).tiny)
    is_normal &= (np.abs(of_gate) >= info.tiny) & (np.abs(expected) >= info.tiny)
    assert is_normal.sum() > is_normal.size / 8
    errors = np.abs(result.double().numpy() - expected)
    if result.dtype in HALF:
        units = oracle.ulp(expected, result.dtype)
        assert (errors < bounds.tolerance(result.dtype) * units)[is_normal].all()
        rounded = np.abs(factor) * oracle.ulp(of_gate, result.dtype)
        assert (errors <= rounded + units)[finite].all()
    else:
        assert (errors < bounds.tolerance(result.dtype) * info.eps * np.abs(expected))[
            is_normal
        ].all()


@each(gate=GATES, dtype=[torch.float32, *HALF])
def test_accuracy(gate: str, dtype: torch.dtype, device: str) -> None:
    """In 16 bits for every x."""
    if dtype in HALF:
        x = oracle.every_16_bit_input(dtype)
        x = x[x.isfinite()]
    else:
        x = torch.cat([normal(20_000) * scale for scale in (0.1, 1, 3, 10)]).to(dtype)
    numbers = x.double().numpy()
    value, derivative = (oracle.reference(gate, order, numbers) for order in (VALUE, DERIVATIVE))
    for scale in (None, 1, 1e-2):
        up, dy = (
            torch.ones_like(x) if scale is None else (normal(len(x)) * scale).to(dtype)
            for _ in range(2)
        )
        u, d = up.double().numpy(), dy.double().numpy()
        y, dx, dup = (t.cpu() for t in run(dy.to(device), x.to(device), up.to(device), gate))
        assert_accurate(y, u, value, FORWARD)
        assert_accurate(dx, d * u, derivative, BACKWARD)
        assert_accurate(dup, d, value, FORWARD)


@each(gate=GATES, dtype=DTYPES)
def test_special_values(gate: str, dtype: torch.dtype, device: str) -> None:
    """inf * 0 is NaN, as in the formulas, and a zero has its sign, but g'(-inf) may be -0. In 16
    bits dx is not compared at -inf: there g' is not zero before it is rounded."""
    numbers = torch.tensor([0.0, -0.0, 1.0, -2.0, math.inf, -math.inf, math.nan], dtype=dtype)
    dy, x, up = (t.flatten().to(device) for t in torch.meshgrid(*[numbers] * 3, indexing="ij"))
    leaf = x.double().requires_grad_()
    value = getattr(reference, gate)(leaf)
    (derivative,) = torch.autograd.grad(value.sum(), leaf)
    value = value.detach()
    exactly = [value * up.double(), dy.double() * up.double() * derivative, dy.double() * value]
    y, dx, dup = run(dy, x, up, gate)
    for ours, expected in zip((y, dx, dup), exactly, strict=True):
        at_end = (x == -math.inf) & (ours is dx)
        equal = ~at_end if dtype in HALF else torch.ones_like(at_end)
        assert torch.equal(ours.isnan()[equal], expected.isnan()[equal])
        signed = ~expected.isnan() & ~at_end
        assert torch.equal(ours.signbit()[signed], expected.signbit()[signed])
        for special in (0, math.inf, -math.inf):
            assert torch.equal((ours == special)[equal], (expected == special)[equal])


@each(gate=GATES, dtype=HALF)
def test_a_gate_that_rounds_to_zero_stays_zero(gate: str, dtype: torch.dtype, device: str) -> None:
    """Where g(x) rounds to zero, y is that zero times up, and dup that zero times dy: NaN if they
    are infinite."""
    x = oracle.every_16_bit_input(dtype)
    value = oracle.correctly_rounded_results(gate, VALUE, dtype).clone()
    value[x == -math.inf] = float(oracle.reference(gate, VALUE, np.array([-1e30]))[0])
    is_zero = value == 0
    assert is_zero.sum() > (2 if gate in oracle.ROOTLESS else 5000)
    x = x[is_zero]
    zeros = torch.zeros(len(x), dtype=torch.float64).copysign(x)
    weight = torch.full((1,), 7.0, dtype=dtype, device=device)
    rows, seed = x[None].to(device), torch.tensor(1, device=device)
    for number in (torch.finfo(dtype).max / 8, -60_000.0, math.inf, -math.inf):
        up = torch.full_like(rows, number)
        _, dup = ops.glu_backward(up, rows, up, None, gate)
        one = torch.ones_like(up)
        _, dup_of_row, dweight = ops.glu_backward_weight(up, rows, one, weight, gate)
        dropped, mask = ops.glu_dropout_forward(rows, up, seed, gate, 0.5)
        kept = mask.cpu()[:, None] >> torch.arange(8) & 1 == 1
        kept = kept.flatten()[: len(x)]
        products = [ops.glu_forward(rows, up, None, gate), dup, dup_of_row]
        products.append(ops.glu_forward(rows, up, weight, gate))
        for found in products:
            assert_equal_zeros(found.flatten().cpu(), zeros * number)
        assert_equal_zeros(dropped.flatten().cpu()[kept], zeros[kept] * number)
        assert dweight.isnan() if math.isinf(number) else dweight == 0


def assert_equal_zeros(found: Tensor, expected: Tensor) -> None:
    """With equal signs; or both NaN."""
    assert torch.equal(found.double().nan_to_num(7), expected.nan_to_num(7))
    is_zero = expected == 0
    assert torch.equal(found.signbit()[is_zero], expected.signbit()[is_zero])


def test_gradients_that_overflow_in_between(device: str) -> None:
    """dy·up is not rounded to 16 bits, not even in a gradient that is differentiated again."""
    numbers = torch.tensor([[-4.0], [40_000.0], [3.0]], dtype=torch.float16, device=device)
    x, up, dy = numbers.unbind()
    x.requires_grad_()
    (dx,) = torch.autograd.grad(functional.geglu(x, up), x, dy, create_graph=True)
    leaf = x.detach().double().requires_grad_()
    expected = torch.autograd.grad(reference.normal(leaf) * up.double(), leaf, dy.double())
    torch.testing.assert_close(dx.double(), expected[0], rtol=2**-11, atol=0)


@each(wanted=[0, 1], create_graph=[False, True])
def test_one_gradient_alone(wanted: int, create_graph: bool, device: str) -> None:
    """Other operators compute it, as accurately as glu_backward in each dtype."""
    for dtype in DTYPES:
        dy, *operands = (normal(7, 33, dtype=dtype, device=device) for _ in range(3))
        leaf = operands[wanted].requires_grad_()
        y = functional.geglu(*operands)
        (found,) = torch.autograd.grad(y, leaf, dy, create_graph=create_graph)
        # On the CPU: a GPU's erfc errs more in float64 than the tolerance allows.
        doubles = [t.detach().double().cpu().requires_grad_() for t in operands]
        y = reference.normal(doubles[0]) * doubles[1]
        (expected,) = torch.autograd.grad(y, doubles[wanted], dy.double().cpu())
        tolerance = {"rtol": 5 * torch.finfo(dtype).eps, "atol": torch.finfo(dtype).eps / 4}
        torch.testing.assert_close(found.double().cpu(), expected, **tolerance)


# Clamped and weighted


@each(gate=GATES, dtype=[torch.float32, *HALF])
def test_accuracy_with_options(gate: str, dtype: torch.dtype, device: str) -> None:
    """The sum with the offset and the product with the weight round once more."""
    limit, offset = 7.0, 1.0
    x = oracle.every_16_bit_input(dtype) if dtype in HALF else (3 * normal(60_000)).to(dtype)
    x = x[x.isfinite()][: 60 * 1000].view(60, -1)
    least = x.double().numpy().clip(max=limit).flatten()
    value, derivative = (
        oracle.reference(gate, order, least).reshape(x.shape) for order in (VALUE, DERIVATIVE)
    )
    derivative = np.where(x.double().numpy() > limit, 0, derivative)
    dy, up = (3 * normal(*x.shape).to(dtype) for _ in range(2))
    weight = normal(60).to(dtype)
    d, w = dy.double().numpy(), weight.double().numpy()[:, None]
    u = up.double().numpy().clip(-limit, limit) + offset
    passes = up.double().abs().numpy() <= limit

    on_device = [t.to(device) for t in (dy, x, up, weight)]
    options = gate, limit, offset
    y = ops.glu_forward(*on_device[1:], *options).cpu()
    dx, dup, dweight = (t.cpu() for t in ops.glu_backward_weight(*on_device, *options))
    bounds = core("glu_backward_weight")
    for result, factor, of_gate, kept in (
        (y, u * w, value, True),
        (dx, d * w * u, derivative, x.double().numpy() <= limit),
        (dup, d * w, value, passes),
    ):
        assert not result[~torch.from_numpy(np.broadcast_to(kept, x.shape).copy())].any()
        assert_accurate(result, factor, np.where(kept, of_gate, 0), bounds)
    terms = d * u * value
    # The error of the gate, of two products and of a sum of 1000 numbers in 256 lanes.
    of_gate = (0.1 if dtype in HALF else 4) * oracle.ulp(value, dtype) * np.abs(d * u)
    bound = (of_gate + 14 * 2.0**-24 * np.abs(terms)).sum(1)
    units = oracle.ulp(terms.sum(1), dtype)
    assert (np.abs(dweight.double().numpy() - terms.sum(1)) <= bound + units / 2).all()


@each(options=["limit", "up_offset", "weight", "limit weight"], halves=[False, True])
def test_each_option_alone(options: str, halves: bool, device: str) -> None:
    x, up, weight, dy = (normal(*s, device=device) for s in ((5, 300), (5, 300), (5,), (5, 300)))
    numbers = {"limit": 0.9} if "limit" in options else {}
    numbers |= {"up_offset": -0.7} if "up_offset" in options else {}
    leaves = [t.requires_grad_() for t in (x, up, weight)[: 3 if "weight" in options else 2]]

    def expected(x: Tensor, up: Tensor, weight: Tensor | None = None) -> Tensor:
        if "limit" in options:
            x, up = reference.clamp(x, max=0.9), reference.clamp(up, -0.9, 0.9)
        y = reference.logistic_1702(x) * (up + numbers.get("up_offset", 0))
        return y if weight is None else y * weight[:, None]

    def ours(x: Tensor, up: Tensor, weight: Tensor | None = None) -> Tensor:
        given = (torch.cat([x, up], -1),) if halves else (x, up)
        return functional.glu(*given, gate="logistic_1702", weight=weight, **numbers)

    results = [[f(*leaves), *torch.autograd.grad(f(*leaves), leaves, dy)] for f in (ours, expected)]
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)


@each(dtype=DTYPES)
def test_gradients_at_the_limit(dtype: torch.dtype, device: str) -> None:
    """They pass at the limit and stop beyond it; NaN stays."""
    limit = 2.0
    beyond = math.nextafter(limit, 3) if dtype == torch.float64 else limit * (1 + 2**-7)
    near = [1.0, limit, beyond, math.inf, -1.0, -limit, -beyond, -math.inf, math.nan]
    numbers = torch.tensor(near, dtype=dtype, device=device)
    x, up = (t.flatten().requires_grad_() for t in torch.meshgrid(numbers, numbers, indexing="ij"))
    y = functional.glu(x, up, gate="normal", limit=limit, up_offset=0.5)
    y.sum().backward()
    leaves = [t.detach().double().requires_grad_() for t in (x, up)]
    least, cut = reference.clamp(leaves[0], max=limit), reference.clamp(leaves[1], -limit, limit)
    expected = reference.normal(least) * (cut + 0.5)
    expected.sum().backward()
    tolerance = {"rtol": 2 * torch.finfo(dtype).eps, "atol": 1e-7}
    is_number = ~(x.isnan() | up.isnan())
    torch.testing.assert_close(y.double(), expected, equal_nan=True, **tolerance)
    for t, leaf in zip((x, up), leaves, strict=True):
        torch.testing.assert_close(t.grad[is_number].double(), leaf.grad[is_number], **tolerance)
    assert x.grad[x.isnan() | (up.isnan() & (x <= limit))].isnan().all()
    assert up.grad[x.isnan() & (up.abs() <= limit)].isnan().all()


@each(
    dtype=[torch.float64, torch.float32, torch.bfloat16],
    columns=[1, 5, 64, 255, 256, 257, 600, 2880],
)
def test_order_of_the_weights_gradient(dtype: torch.dtype, columns: int, device: str) -> None:
    """As csrc/gates/glu_rows.h states it. g(64) = 64 makes the terms exact."""
    dy = normal(3, columns).to(dtype)
    x, up, weight = (torch.full_like(t, 64) for t in (dy, dy, dy[:, 0]))
    arguments = (t.to(device) for t in (dy, x, up / 64, weight))
    *_, dweight = ops.glu_backward_weight(*arguments, "normal")
    wide = np.float64 if dtype == torch.float64 else np.float32
    lanes = np.zeros((3, 256), wide)
    for j in range(columns):
        lanes[:, j % 256] += 64 * dy[:, j].double().numpy().astype(wide)
    while lanes.shape[1] > 1:
        lanes = lanes[:, ::2] + lanes[:, 1::2]
    assert torch.equal(dweight.cpu(), torch.from_numpy(lanes[:, 0]).to(dtype))


BAD_NUMBERS = [("limit", 0), ("limit", -1), ("limit", math.nan)]
BAD_NUMBERS += [("up_offset", math.inf), ("up_offset", math.nan)]


@each(number=BAD_NUMBERS)
def test_numbers_that_are_refused(number: tuple[str, float], device: str) -> None:
    name, value = number
    options = {name: value}
    required = {"limit": "positive", "up_offset": "finite"}[name]
    message = f"{name} must be {required}, got {value}"
    x = torch.ones(2, 4, device=device)
    with pytest.raises(ValueError, match=rf"^glu\(\): {message}"):
        functional.glu(x, x, gate="normal", **options)
    with pytest.raises(ValueError, match=f"glu_halves_forward: {message}"):
        ops.glu_halves_forward(x, None, "normal", **options)
    with pytest.raises(ValueError, match=f"glu_backward: {message}"):
        ops.glu_backward(x, x, x, None, "normal", **options)
