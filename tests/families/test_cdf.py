"""A gate with a location and a scale: its accuracy, a scale of 0, the gradients of the parameters,
and parameters that are numbers, vectors or one of each."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from gelu_kernels import functional, nn, reference
from gelu_kernels.operators.table import core
from tests import bits
from tests.calls import DTYPES, GATES, normal, positive
from tests.cases import each
from tests.devices import BACKENDS, kernels_for
from tests.oracles import oracle
from tests.oracles.oracle import mpf

ops = torch.ops.gelu_kernels
WIDE, HALF = [torch.float32, torch.float64], [torch.float16, torch.bfloat16]
FORWARD, BACKWARD = core("cdf_gate_forward"), core("cdf_gate_backward")
Expected = list[tuple[mpf, mpf]]  # each with the sum of its terms' absolute values


def exact(gate: str, x: float, loc: float, scale: float) -> Expected:
    """y and the gradients for dy = 1."""
    x, loc, scale = map(mpf, (x, loc, scale))
    z = (x - loc) / scale
    distribution, density = oracle.distribution(gate, z)
    y, slope = x * distribution, x * density / scale
    size = distribution + abs(slope)
    return [(y, y), (distribution + slope, size), (-slope, slope), (-slope * z, slope * z)]


def run(dy: Tensor, x: Tensor, loc: Tensor, scale: Tensor, gate: str) -> list[Tensor]:
    tensors = x, loc, scale
    return [ops.cdf_gate_forward(*tensors, gate), *ops.cdf_gate_backward(dy, *tensors, gate)]


def end_of_tail(gate: str, dtype: torch.dtype) -> float:
    """Where F(-a) is no longer a normal number."""
    a = 1.0
    while oracle.distribution(gate, mpf(-a))[0] > torch.finfo(dtype).tiny:
        a *= 1.1
    return min(a, 1e6)


@each(gate=GATES, dtype=WIDE)
def test_accuracy(gate: str, dtype: torch.dtype, device: str) -> None:
    """Where F(z) is a normal number. The gradient of a parameter has one term here."""
    end = end_of_tail(gate, dtype)
    n = 500
    loc, scale = (3 * normal(n)).to(dtype), positive(normal(n)).to(dtype)
    z = torch.cat([torch.linspace(-end, end / 4, n // 2), 3 * torch.randn(n - n // 2)])
    x = (loc + z.to(dtype) * scale).to(dtype)
    results = run(*(t.to(device) for t in (torch.ones_like(x), x, loc, scale)), gate)
    numbers = list(zip(*(t.tolist() for t in (x, loc, scale)), strict=True))
    columns = zip(*(exact(gate, *three) for three in numbers), strict=True)
    distributions = [
        oracle.distribution(gate, (mpf(x) - mpf(loc)) / scale)[0] for x, loc, scale in numbers
    ]
    tiny = torch.finfo(dtype).tiny
    bounds = [FORWARD.ulp, *[BACKWARD.ulp] * 3]
    for result, column, bound in zip(results, columns, bounds, strict=True):
        values, sizes = zip(*column, strict=True)
        errors = oracle.exact_ulp_errors(result, values, sizes)
        are_normal = zip(sizes, distributions, strict=True)
        is_normal = np.array([min(abs(size), f) >= tiny for size, f in are_normal])
        assert is_normal.sum() > n / 2
        assert errors[is_normal].max() <= bound


@each(gate=GATES, dtype=HALF, parameters=[(0, 1), (0.75, 0.3), (-3, 5), (20, 9)])
def test_16_bits(
    gate: str, dtype: torch.dtype, parameters: tuple[float, float], device: str
) -> None:
    """For every x. The two terms of the gradient, each with float32's errors, may cancel. dx is
    not compared where the density of a Cauchy distribution underflows, y not where z overflows."""
    x = oracle.every_16_bit_input(dtype)
    x = x[x.isfinite()]
    stored = [torch.full((), number, dtype=dtype) for number in parameters]
    y, dx, _, _ = run(*(t.to(device) for t in (torch.ones_like(x), x, *stored)), gate)
    z = ((x.double() - stored[0].double()) / stored[1].double()).requires_grad_()
    distribution = reference.DISTRIBUTIONS[gate](z)
    (density,) = torch.autograd.grad(distribution.sum(), z)
    slope = x.double() * density.nan_to_num(0) / stored[1].double()
    has_density = (density >= torch.finfo(torch.float32).tiny) | (z > 0)
    bound = FORWARD.ulp_of_16_bits
    for result, expected, size, is_in_range in (
        (y, x.double() * distribution, 0 * slope, z.abs() <= torch.finfo(torch.float32).max),
        (dx, distribution + slope, distribution + slope.abs(), has_density),
    ):
        expected, size = expected.detach(), size.detach()
        info = torch.finfo(dtype)
        is_normal = (expected.abs() >= info.tiny) & (expected.abs() <= info.max) & is_in_range
        assert is_normal.sum() > 10_000
        units = torch.from_numpy(oracle.ulp(expected[is_normal].numpy(), dtype))
        errors = (result.double().cpu() - expected)[is_normal].abs()
        assert (errors <= bound * units + 2.0**-20 * size[is_normal]).all()


@each(gate=GATES, dtype=DTYPES)
def test_scale_of_zero(gate: str, dtype: torch.dtype, device: str) -> None:
    """x 1[x > loc], half of it at x = loc; the gradient of x is the step, the others are 0."""
    largest = torch.finfo(dtype).max
    x = torch.tensor([-largest, -2, 0.75, 0.8, 3, largest], dtype=dtype, device=device)
    loc = x[2].clone()
    zero = torch.zeros((), dtype=dtype, device=device)
    step = torch.heaviside((x - loc).double(), torch.tensor(0.5, device=device).double())
    for shape in ((), (len(x),)):
        for scale in (zero, -zero):
            parameters = [t.expand(shape).contiguous() for t in (loc, scale)]
            y, dx, dloc, dscale = run(torch.ones_like(x), x, *parameters, gate)
            assert torch.equal(y.double(), x.double() * step)
            assert torch.equal(dx.double(), step)
            assert not dloc.any() and not dscale.any()


@each(gate=GATES, dtype=DTYPES)
def test_limits(gate: str, dtype: torch.dtype, device: str) -> None:
    x = torch.tensor([math.inf, -math.inf, math.nan], dtype=dtype, device=device)
    loc, scale = (torch.full((), number, dtype=dtype, device=device) for number in (0.5, 2))
    y, dx, dloc, dscale = run(torch.ones_like(x), x, loc, scale, gate)
    at_minus_infinity = ops.gate_forward(x[1], None, gate)
    assert torch.equal(y[:2], torch.stack([x[0], 2 * at_minus_infinity]))
    assert y[1].signbit() and y[2].isnan()
    assert dx[:2].tolist() == [1, 0] and dx[2].isnan()
    assert dloc.isnan() and dscale.isnan()
    of_infinities = ops.cdf_gate_backward(torch.ones_like(x[:2]), x[:2], loc, scale, gate)
    assert not of_infinities[1].any() and not of_infinities[2].any()


SHAPES = [(1,), (1023,), (1025,), (300_007,), (40, 63), (40, 64), (300, 513), (2, 16_385), (9, 0)]


def expected_sums(dy: Tensor, x: Tensor, loc: Tensor, scale: Tensor, gate: str) -> list[Tensor]:
    """The sums of the terms, and of their absolute values."""
    wide = [t.double().requires_grad_() for t in (x, *torch.broadcast_tensors(loc, scale, x)[:2])]
    y = wide[0] * reference.DISTRIBUTIONS[gate]((wide[0] - wide[1]) / wide[2])
    terms = torch.autograd.grad(y, wide[1:], dy.double())
    return [
        (t.sum_to_size(p.shape), t.abs().sum_to_size(p.shape))
        for t, p in zip(terms, (loc, scale), strict=True)
    ]


@each(shape=SHAPES, vectors=[(), ("loc",), ("scale",), ("loc", "scale")])
def test_sums(shape: tuple[int, ...], vectors: tuple[str, ...], device: str) -> None:
    """To a few float32 units of the terms, plus the rounding of the result."""
    for dtype in DTYPES:
        loc, scale = (
            make(normal(*(shape[-1:] if name in vectors else ()), dtype=dtype, device=device))
            for name, make in (("loc", lambda t: t), ("scale", positive))
        )
        dy, x = (normal(*shape, dtype=dtype, device=device) for _ in range(2))
        dx, *sums = ops.cdf_gate_backward(dy, x, loc, scale, "normal")
        eps = torch.finfo(dtype).eps
        unit = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps
        for result, (exact_sum, size) in zip(
            sums, expected_sums(dy, x, loc, scale, "normal"), strict=True
        ):
            assert result.shape == exact_sum.shape
            bound = 200 * unit * size + eps * exact_sum.abs() + torch.finfo(dtype).tiny
            assert ((result.double() - exact_sum).abs() <= bound).all()


MIXES = [{"loc": (), "scale": (5,)}, {"loc": (5,), "scale": ()}]


@each(mix=MIXES, gate=GATES)
def test_a_number_and_a_vector(mix: dict[str, tuple[int, ...]], gate: str, device: str) -> None:
    x = normal(3, 5, device=device)
    loc, scale = normal(*mix["loc"], device=device), positive(normal(*mix["scale"], device=device))
    leaves = [t.requires_grad_() for t in (x, loc, scale)]

    def f(*tensors: Tensor) -> Tensor:
        return functional.cdf_gate(*tensors, gate=gate)

    assert gradcheck(f, leaves, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(f, leaves, check_fwd_over_rev=True)


@pytest.mark.parametrize("backend", BACKENDS)
@each(mix=MIXES)
def test_bits_of_a_number_and_a_vector(mix: dict[str, tuple[int, ...]], backend: str) -> None:
    for dtype in (torch.bfloat16, torch.float64):
        for columns in (5, 264):
            shapes = [(70, columns), *((columns,) if shape else () for shape in mix.values())]
            x, loc, scale = (normal(*shape, dtype=dtype) for shape in shapes)
            tensors = normal(70, columns, dtype=dtype), x, loc, positive(scale)
            with kernels_for(backend) as device:
                results = run(*(t.to(device, copy=True) for t in tensors), "normal")
            for result, e in zip(results, run(*tensors, "normal"), strict=True):
                assert bits.differing(result.cpu(), e) == 0


def test_the_order_of_the_sums_depends_on_shapes_alone() -> None:
    """Not on strides."""
    for shape in ((700, 33), (50, 100)):
        dy, x = (normal(*shape, dtype=torch.float32) for _ in range(2))
        loc, scale = torch.tensor(0.5), torch.tensor(2.0)
        expected = ops.cdf_gate_backward(dy, x, loc, scale, "normal")
        transposed = (t.t().contiguous().t() for t in (dy, x))
        results = ops.cdf_gate_backward(*transposed, loc, scale, "normal")
        assert all(map(bits.same, results, expected))


def test_numbers(device: str) -> None:
    x = normal(3, 4, device=device)
    as_tensors = functional.cdf_gate(x, *(torch.tensor(n, device=device).double() for n in (1, 2)))
    assert torch.equal(functional.cdf_gate(x, 1, 2.0), as_tensors)
    compile_ = torch.compile(fullgraph=True, backend="aot_eager")
    assert torch.equal(compile_(lambda x: functional.cdf_gate(x, 1, 2.0))(x), as_tensors)
    for scale in (-1, math.nan):
        with pytest.raises(ValueError, match=r"^cdf_gate\(\): scale must be at least 0, got"):
            functional.cdf_gate(x, 0, scale)


def test_module(device: str) -> None:
    module = nn.CDFGate("normal", 0.5, 2, num_parameters=4, device=device)
    assert {name: p.tolist() for name, p in module.named_parameters()} == {
        "loc": [0.5] * 4,
        "scale": [2] * 4,
    }
    torch.nn.init.ones_(module.loc)
    module.reset_parameters()
    x = normal(3, 4, dtype=torch.float32, device=device)
    expected = functional.cdf_gate(x, 0.5, 2)
    assert torch.equal(module(x), expected)
    fixed = nn.CDFGate("normal", 0.5, 2, learnable=False, device=device)
    assert not list(fixed.parameters())
    assert {name: t.shape for name, t in fixed.state_dict().items()} == {"loc": (1,), "scale": (1,)}
    assert torch.equal(fixed(x), expected)
    module(x).sum().backward()
    assert module.loc.grad.shape == (4,) and module.scale.grad.shape == (4,)


@each(shape=[(), (1,), (3, 1), (3, 4)], is_compiled=[False, True])
def test_one_number_in_a_module(shape: tuple[int, ...], is_compiled: bool, device: str) -> None:
    """It is a vector of one element in the module, but not a vector along the last dimension: its
    gradients have the bits of a 0-d tensor's."""
    module = nn.CDFGate("normal", 0.5, 2, device=device)
    call = torch.compile(module, fullgraph=True, backend="aot_eager") if is_compiled else module
    x = normal(*shape, dtype=torch.float32, device=device).requires_grad_()
    loc, scale = (torch.tensor(n, device=device, requires_grad=True) for n in (0.5, 2.0))
    results = []
    for y, leaves in (
        (call(x), (x, module.loc, module.scale)),
        (functional.cdf_gate(x, loc, scale), (x, loc, scale)),
    ):
        results.append([y, *torch.autograd.grad(y.square().sum(), leaves)])
    assert [t.shape for t in results[0]] == [shape, shape, (1,), (1,)]
    for found, expected in zip(*results, strict=True):
        assert bits.same(found.reshape(expected.shape), expected)


@each(learnable=[True, False], assign=[False, True])
def test_a_state_of_version_0_2_loads(learnable: bool, assign: bool) -> None:
    """That version had 0-d tensors."""
    old = {"1.loc": torch.tensor(0.5), "1.scale": torch.tensor(2.0)}
    model = torch.nn.Sequential(torch.nn.ReLU(), nn.CDFGate(learnable=learnable))
    assert not any(model.load_state_dict(old, assign=assign))
    assert {name: t.tolist() for name, t in model.state_dict().items()} == {
        "1.loc": [0.5],
        "1.scale": [2],
    }
    assert all(t.dim() == 0 for t in old.values())
    assert [p.is_leaf and p.requires_grad for p in model.parameters()] == [True] * 2 * learnable
    wrong = nn.CDFGate(num_parameters=4)
    with pytest.raises(RuntimeError, match="size mismatch for loc"):
        wrong.load_state_dict({"loc": torch.tensor(0.5)}, strict=False)
