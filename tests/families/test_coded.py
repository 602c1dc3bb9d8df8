"""save="8bit" and "4bit": the derivative saved for backward, its codes and how they round."""

import math
from collections.abc import Callable
from functools import partial
from itertools import combinations, product

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, vmap

from gelu_kernels import functional, nn
from gelu_kernels.operators.table import APPROXIMATE
from tests import bits as patterns
from tests.calls import DTYPES, GATES, SEED, AsModule
from tests.cases import each
from tests.oracles import coded_oracle, oracle, soi_oracle, sweeps

ops = torch.ops.gelu_kernels
BITS = [8, 4]
DRAWS = 2**20


def seed_on(device: str) -> Tensor:
    return torch.tensor(SEED, device=device)


def largest_error(x: Tensor, gate: str, bits: int) -> float:
    """The largest error of the decoded derivative."""
    y, code = ops.coded_forward(x, None, None, gate, bits)
    assert patterns.differing(y, ops.gate_forward(x, None, gate)) == 0
    codes = coded_oracle.unpack(code, x.numel(), bits)
    errors = coded_oracle.decoded(codes, bits) - coded_oracle.derivative(x, None, gate)
    return float(np.abs(errors).max())


# The error of a code


@each(gate=GATES, dtype=DTYPES)
def test_error(gate: str, dtype: torch.dtype, device: str) -> None:
    """Of a 16-bit dtype, every input."""
    x = torch.linspace(-9, 9, 2**16, dtype=dtype)
    if dtype.itemsize == 2:
        x = oracle.every_16_bit_input(dtype)
        x = x[x.isfinite()]
    for bits in BITS:
        assert largest_error(x.to(device), gate, bits) <= coded_oracle.BOUND[bits]


@pytest.mark.slow
@each(gate=GATES)
def test_error_of_float32(gate: str, device: str) -> None:
    """For at least 2^24 inputs."""
    count = 0
    for x in sweeps.float32_inputs(spacing=3):
        count += len(x)
        for bits in BITS:
            error = largest_error(torch.from_numpy(x).to(device), gate, bits)
            assert error <= coded_oracle.BOUND[bits]
    assert count >= 2**24


@each(dtype=DTYPES)
def test_values_with_a_bias(dtype: torch.dtype, device: str) -> None:
    """The values are the gate's, also where a sum lies halfway between two numbers."""
    x = torch.arange(2.0, 6001.0, 2, device=device).to(dtype)
    for bias in (torch.ones_like(x), -x + 0.1):
        for bits in BITS:
            y, _ = ops.coded_forward(x, bias, None, "normal", bits)
            assert patterns.same(y, ops.gate_forward(x, bias, "normal"))


def test_the_bounds_that_are_stated() -> None:
    assert coded_oracle.BOUND[8] <= 0.0025
    assert coded_oracle.BOUND[4] <= 0.05 + 1e-6


@each(gate=GATES, dtype=DTYPES, bits=BITS)
def test_0_and_1_are_exact(gate: str, dtype: torch.dtype, bits: int, device: str) -> None:
    """Infinity has a derivative of 1 and -infinity of 0, dithered as well; NaN stays NaN."""
    x = torch.tensor([-math.inf, math.inf, math.nan] * 9, dtype=dtype, device=device)
    dy = torch.full_like(x, 3)
    for seed in (None, seed_on(device)):
        y, code = ops.coded_forward(x, None, seed, gate, bits, 0.0, seed is not None)
        assert patterns.differing(y, ops.gate_forward(x, None, gate)) == 0
        dx = ops.coded_backward(dy, code, bits)
        assert (dx[::3] == 0).all() and (dx[1::3] == 3).all() and dx[2::3].isnan().all()


@each(bits=BITS)
def test_every_code_is_decoded(bits: int, device: str) -> None:
    """To the nearest float, within half a unit."""
    codes = np.arange(2**bits)
    code = coded_oracle.pack(codes, bits).to(device)
    expected = coded_oracle.decoded(codes, bits)
    for dtype in DTYPES:
        dx = ops.coded_backward(torch.ones(len(codes), dtype=dtype, device=device), code, bits)
        eps = torch.finfo(dtype).eps
        relative = 0.501 if dtype.itemsize == 2 else 1
        np.testing.assert_allclose(dx.double().cpu(), expected, rtol=relative * eps, atol=0)


@each(dtype=DTYPES, p=[0.0, 0.3], bits=BITS)
def test_gradient(dtype: torch.dtype, p: float, bits: int, device: str) -> None:
    """dy times the decoded derivative, in float64."""
    x = torch.linspace(-5, 5, 5000, dtype=dtype, device=device).view(100, 50)
    dy = torch.randn(100, 50, dtype=torch.float64).to(device, dtype)
    seed = seed_on(device) if p else None
    _, code = ops.coded_forward(x, None, seed, "normal", bits, p)
    codes = coded_oracle.unpack(code, x.numel(), bits)
    derivative = torch.from_numpy(coded_oracle.decoded(codes, bits)).view(x.shape) / (1 - p)
    product = dy.cpu().double() * derivative
    dx = ops.coded_backward(dy, code, bits, p)
    same, dbias = ops.coded_backward_bias(dy, code, bits, p)
    assert torch.equal(dx, same)
    is_half = dtype.itemsize == 2
    # A half unit of rounding at most twice as wide, after up to three in the type of the gate.
    units = 0.502 if is_half else 2.5
    info = torch.finfo(dtype)
    subnormal = info.smallest_normal * info.eps / 2
    torch.testing.assert_close(
        dx.cpu().double(), product, rtol=units * info.eps, atol=1.01 * subnormal
    )
    absolute = 100 * torch.finfo(torch.float32 if is_half else dtype).eps
    torch.testing.assert_close(
        dbias.cpu().double(), product.sum(0), rtol=torch.finfo(dtype).eps, atol=absolute
    )


@each(shape=[(7, 1), (7, 33), (3, 1025), (3, 4097)], bits=BITS)
def test_rows_that_begin_within_a_byte(shape: tuple[int, int], bits: int, device: str) -> None:
    """The same dx with and without the gradient of the bias, and from a strided code."""
    x, dy = torch.randn(2, *shape, device=device)
    _, code = ops.coded_forward(x, None, None, "normal", bits)
    expected = ops.coded_backward(dy, code, bits)
    strided = torch.stack([code, ~code], 1)[:, 0]
    assert torch.equal(ops.coded_backward(dy, strided, bits), expected)
    for given in (code, strided):
        dx, dbias = ops.coded_backward_bias(dy, given, bits)
        assert torch.equal(dx, expected)
        torch.testing.assert_close(dbias, expected.sum(0), rtol=2e-7, atol=1e-6)


def test_an_infinite_gradient_is_a_product(device: str) -> None:
    x = torch.tensor([-40.0, 40.0], device=device)
    _, code = ops.coded_forward(x, None, None, "normal", 8)
    dx = ops.coded_backward(torch.full_like(x, math.inf), code, 8)
    assert dx[0].isnan() and dx[1] == math.inf


# Random codes


@each(bits=BITS, p=[0.0, 0.25])
def test_dithering_is_unbiased(bits: int, p: float, device: str) -> None:
    """Within 4 sigma, and each code is one of the two nearest; with dropout, for kept elements."""
    for value in (-2.0, -0.7, 0.1, 0.37, 1.4):
        x = torch.full((DRAWS,), value, device=device)
        _, code = ops.coded_forward(x, None, seed_on(device), "normal", bits, p, True)
        codes = coded_oracle.unpack(code, DRAWS, bits)
        if p:
            kept = soi_oracle.not_dropped((DRAWS,), SEED, p).numpy()
            assert (codes[~kept] == coded_oracle.ZERO[bits]).all()
            codes = codes[kept]
        exact = float(oracle.exact("normal", oracle.DERIVATIVE, float(np.float32(value))))
        step = coded_oracle.decoded(codes, bits)
        assert np.abs(step - exact).max() < 1 / coded_oracle.LEVELS[bits]
        fraction = exact * coded_oracle.LEVELS[bits] % 1
        sigma = math.sqrt(fraction * (1 - fraction) / len(codes)) / coded_oracle.LEVELS[bits]
        assert abs(step.mean() - exact) < 4 * sigma


@each(bits=BITS)
def test_dithering_by_the_words_of_the_elements(bits: int, device: str) -> None:
    """An element's random word belongs to its place in the whole tensor."""
    x = torch.randn(1000, device=device)
    for index in ((0, 0, 0), (5, 0, 0), (3, 10, 100)):
        _, code = ops.coded_forward(x, None, seed_on(device), "normal", bits, 0.0, True, *index)
        u = soi_oracle.words_of(SEED, 1000, *index) & np.uint64(0xFFFF)
        derivative = coded_oracle.derivative(x, None, "normal")
        exact = derivative * coded_oracle.LEVELS[bits] + coded_oracle.ZERO[bits] + u / 2**16
        codes = coded_oracle.unpack(code, 1000, bits)
        assert np.mean(codes == np.floor(exact)) > 0.99
        assert (np.abs(codes + 0.5 - exact) < 0.5 + 1e-3).all()


@each(p=[0.1, 0.5, 0.9])
def test_dropout(p: float, device: str) -> None:
    """The words decide; the frequency is within 4 sigma; kept elements are scaled."""
    x = torch.full((DRAWS,), 1.5, device=device)
    y, code = ops.coded_forward(x, None, seed_on(device), "normal", 8, p)
    kept = soi_oracle.not_dropped((DRAWS,), SEED, p).numpy()
    assert np.array_equal(y.cpu().numpy() != 0, kept)
    assert abs(kept.mean() - (1 - p)) < 4 * math.sqrt(p * (1 - p) / DRAWS)
    value = ops.gate_forward(x[:1], None, "normal").double() / (1 - p)
    torch.testing.assert_close(y[y != 0].double(), value.expand(kept.sum()), rtol=3e-7, atol=0)
    assert (coded_oracle.unpack(code, DRAWS, 8)[~kept] == coded_oracle.ZERO[8]).all()


@each(bits=BITS)
def test_everything_may_be_dropped(bits: int, device: str) -> None:
    x = torch.tensor([math.inf, -math.inf, math.nan, 1.0, -1.0], device=device)
    y, code = ops.coded_forward(x, None, seed_on(device), "normal", bits, 1.0)
    assert patterns.same(y, torch.zeros_like(x))
    assert (ops.coded_backward(torch.ones_like(x), code, bits, 1.0) == 0).all()
    assert (coded_oracle.unpack(code, len(x), bits) == coded_oracle.ZERO[bits]).all()


# In memory


@each(n=[0, 1, 2, 3, 7, 8, 9, 511, 512, 513, 4097], bits=BITS)
def test_packing(n: int, bits: int, device: str) -> None:
    """In row-major order; the last half of a byte is 0."""
    x = torch.linspace(-3, 3, n, device=device)
    _, code = ops.coded_forward(x, None, None, "logistic", bits)
    assert code.shape == ((n * bits + 7) // 8,) and code.dtype == torch.uint8
    codes = coded_oracle.codes(x, None, "logistic", bits, None, code)
    assert torch.equal(code.cpu(), coded_oracle.pack(codes, bits))
    rows = torch.stack([x, -x])
    _, transposed = ops.coded_forward(rows.t().contiguous().t(), None, None, "logistic", bits)
    assert torch.equal(transposed, ops.coded_forward(rows, None, None, "logistic", bits)[1])


def with_what_is_saved(f: Callable[..., Tensor], *tensors: Tensor) -> tuple[Tensor, list[Tensor]]:
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        return f(*tensors), saved


@each(biased=[False, True], bits=BITS)
def test_what_is_saved(biased: bool, bits: int, device: str) -> None:
    """The code, and nothing else: x may change."""
    x = torch.randn(6, 5, device=device, requires_grad=True)
    bias = [torch.randn(5, device=device, requires_grad=True)] if biased else []
    y, saved = with_what_is_saved(partial(functional.gate, save=f"{bits}bit"), x, *bias)
    assert [(t.dtype, t.nbytes) for t in saved] == [(torch.uint8, 30 * bits // 8)]
    with torch.no_grad():
        x.zero_()
    y.sum().backward()


def test_a_code_for_the_bias_alone(device: str) -> None:
    x = torch.randn(6, 5, device=device)
    bias = torch.randn(5, device=device, requires_grad=True)
    y, saved = with_what_is_saved(partial(functional.gate, save="4bit"), x, bias)
    assert [(t.dtype, t.nbytes) for t in saved] == [(torch.uint8, 15)]
    (found,) = torch.autograd.grad(y.sum(), bias)
    y = functional.gate(x.requires_grad_(), bias, save="4bit")
    assert torch.equal(found, torch.autograd.grad(y.sum(), bias)[0])


def test_no_code_without_a_gradient(device: str) -> None:
    x = torch.randn(5, 10, device=device)
    with torch.profiler.profile() as profile:
        functional.gelu(x, save="8bit", dither=True)
        functional.gate_dropout(x, save="4bit")
        functional.gate_dropout(x, x[0], save="4bit")
        with torch.no_grad():
            functional.gelu(x.requires_grad_(), save="8bit")
    names = {event.name for event in profile.events()}
    assert {"gelu_kernels::gate_forward", "gelu_kernels::gate_dropout_forward"} <= names
    assert "gelu_kernels::coded_forward" not in names


# The public operators

FUNCTIONS = {
    "gelu": lambda x, b, **o: functional.gelu(x, approximate="tanh", **o),
    "bias_gelu": functional.bias_gelu,
    "gate": lambda x, b, **o: functional.gate(x, b, gate="laplace", **o),
    "silu": lambda x, b, **o: functional.silu(x, **o),
    "lalu": lambda x, b, **o: functional.lalu(x, **o),
    "cauchy_gate": lambda x, b, **o: functional.cauchy_gate(x, **o),
}
OPTIONS = [{"save": save, "dither": dither} for save, dither in product(("8bit", "4bit"), (0, 1))]


def leaves(device: str) -> list[Tensor]:
    return [torch.randn(s, device=device, requires_grad=True) for s in ((40, 10), (10,))]


def gradients(f: Callable[..., Tensor], *tensors: Tensor) -> tuple[Tensor, ...]:
    """After the result; each call draws the same numbers."""
    torch.manual_seed(1)
    y = f(*tensors)
    return y, *torch.autograd.grad(y.sum(), tensors, allow_unused=True, materialize_grads=True)


@each(name=FUNCTIONS)
def test_functions(name: str, device: str) -> None:
    tensors = leaves(device)
    f = FUNCTIONS[name]
    exact = gradients(f, *tensors)
    results = [exact[1]]
    for options in OPTIONS:
        found, again = (gradients(partial(f, **options), *tensors) for _ in range(2))
        assert patterns.same(found[0], exact[0])
        bits = int(options["save"][0])
        step = (2 if options["dither"] else 1) * coded_oracle.BOUND[bits]
        for g, same, e in zip(found[1:], again[1:], exact[1:], strict=True):
            assert torch.equal(g, same)
            assert (g - e).abs().max() <= step * (1 if g.dim() == 2 else 40)
        results.append(found[1])
    assert not any(torch.equal(a, b) for a, b in combinations(results, 2))


@each(
    lambda options, backend: backend == "inductor" and options is not OPTIONS[-1],
    options=OPTIONS,
    backend=["aot_eager", "inductor"],
)
def test_compile(options: dict, backend: str, device: str) -> None:
    """The codes that eager calls make."""
    torch.compiler.reset()
    tensors = leaves(device)
    f = partial(functional.bias_gelu, **options)
    compiled = torch.compile(lambda *t: f(*t), fullgraph=True, backend=backend)
    assert all(map(torch.equal, gradients(compiled, *tensors), gradients(f, *tensors)))


def test_export(device: str) -> None:
    x = torch.randn(5, 6, device=device)
    model = AsModule(partial(functional.gelu, save="8bit"))
    exported = torch.export.export(model, (x,)).module()
    assert torch.equal(exported(x), functional.gelu(x))


@each(options=OPTIONS[::2])
def test_vmap(options: dict, device: str) -> None:
    """Over a batch in a gradient, and over gradients."""
    x = torch.randn(5, 7, device=device, requires_grad=True)
    f = partial(functional.gelu, **options)
    expected = gradients(f, x)[1]
    assert torch.equal(gradients(vmap(f), x)[1], expected)
    assert torch.equal(vmap(grad(lambda x: f(x).sum()))(x.detach()), expected)


def test_vmap_of_nan(device: str) -> None:
    x = torch.tensor([[math.nan, 1.0], [-1.0, math.nan]], device=device)
    for options in OPTIONS[::2]:
        f = partial(functional.gelu, **options)
        dx = vmap(grad(lambda x, f=f: f(x).sum()))(x)
        assert torch.equal(dx.isnan(), x.isnan())


@each(randomness=["same", "different"])
def test_randomness_of_vmap(randomness: str, device: str) -> None:
    x = torch.full((3, 100), 0.37, device=device)

    def gradient(x: Tensor) -> Tensor:
        return grad(lambda x: functional.gelu(x, save="4bit", dither=True).sum())(x)

    found = vmap(gradient, randomness=randomness)(x)
    assert torch.equal(found[0], found[1]) == (randomness == "same")


def test_forward_mode(device: str) -> None:
    """From the code where there is one, else exact."""
    x, v = torch.randn(2, 50, device=device, dtype=torch.float64)

    def tangent(x: Tensor, **options: str) -> Tensor:
        with forward_ad.dual_level():
            y = functional.gelu(forward_ad.make_dual(x, v), **options)
            return forward_ad.unpack_dual(y).tangent.detach()

    exact = tangent(x)
    assert torch.equal(tangent(x, save="4bit"), exact)
    x.requires_grad_()
    (dx,) = torch.autograd.grad(functional.gelu(x, save="4bit"), x, v)
    assert torch.equal(tangent(x, save="4bit"), dx) and not torch.equal(dx, exact)


def test_a_second_derivative_is_0(device: str) -> None:
    x = torch.randn(50, device=device, requires_grad=True)
    dy = torch.randn(50, device=device, requires_grad=True)
    (dx,) = torch.autograd.grad(functional.gelu(x, save="8bit"), x, dy, create_graph=True)
    second, of_dy = torch.autograd.grad(dx.sum(), (x, dy), allow_unused=True)
    assert second is None
    (expected,) = torch.autograd.grad(functional.gelu(x, save="8bit").sum(), x)
    assert torch.equal(of_dy, expected)


def test_jagged(device: str) -> None:
    parts = [torch.randn(n, 6, device=device) for n in (2, 5)]
    x = torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=True)
    bias = torch.randn(6, device=device, requires_grad=True)
    values = torch.cat(parts).requires_grad_()
    for f in (
        partial(functional.gelu, save="8bit"),
        partial(functional.gelu, save="4bit", dither=True),
        lambda x: functional.bias_gelu(x, bias, save="8bit"),
    ):
        _, dx = gradients(lambda x, f=f: f(x).values(), x)
        assert torch.equal(dx.values(), gradients(f, values)[1])


def test_autocast() -> None:
    x, bias = torch.randn(6, 5).bfloat16(), torch.randn(5, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = functional.bias_gelu(x, bias, save="8bit")
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    assert bias.grad.dtype == torch.float32


@each(
    make=[
        partial(nn.GELU, "tanh"),
        partial(nn.BiasGELU, 10),
        partial(nn.LinearGELU, 10, 10),
        partial(nn.LinearGELU, 10, 10, bias=False),
        nn.SiLU,
        nn.LaLU,
        nn.CauchyGate,
    ]
)
def test_modules(make: Callable[..., torch.nn.Module], device: str) -> None:
    x = torch.randn(40, 10, device=device, requires_grad=True)
    exact = make().to(device)
    for options in OPTIONS:
        module = make(**options).to(device)
        module.load_state_dict(exact.state_dict())
        y, saved = with_what_is_saved(module, x)
        assert torch.equal(y, exact(x))
        assert torch.uint8 in {t.dtype for t in saved}
        assert f"save='{options['save']}'" in repr(module)
        assert ("dither=True" in repr(module)) == bool(options["dither"])
    assert "save" not in repr(exact)


# Errors

WITH_OPTIONS = {
    "gelu": functional.gelu,
    "bias_gelu": lambda x, **o: functional.bias_gelu(x, x[0], **o),
    "gate": functional.gate,
    "bias_gelu_dropout": lambda x, **o: functional.bias_gelu_dropout(x, x[0], **o),
    "gate_dropout": functional.gate_dropout,
}


@each(function=WITH_OPTIONS)
def test_bad_options(function: str) -> None:
    """Nothing is drawn before the error."""
    x, state = torch.randn(3, 4), torch.get_rng_state()
    f = WITH_OPTIONS[function]
    message = rf"^{function}\(\): save must be None, '8bit' or '4bit', got '2bit'"
    for context in (torch.no_grad, torch.enable_grad):
        with context(), pytest.raises(ValueError, match=message):
            f(x, save="2bit")
    with pytest.raises(ValueError, match=rf"^{function}\(\): dither must be False without"):
        f(x, dither=True)
    assert torch.equal(torch.get_rng_state(), state)


@each(op=["fused_gelu", "fused_bias_gelu", "fused_gate"])
def test_bad_seed(op: str) -> None:
    x = torch.randn(3, 4)
    arguments = (x, x[0]) if op == "fused_bias_gelu" else (x,)
    gate = {"gate": "normal"} if op == "fused_gate" else {}
    call = partial(getattr(ops, op), *arguments, **gate)
    with pytest.raises(ValueError, match=f"::{op}: seed must be None without save, got a tensor"):
        call(seed=torch.tensor(1))
    with pytest.raises(ValueError, match=f"::{op}: seed must be 0-d, got 1 dimensions"):
        call(save="8bit", seed=torch.tensor([1]))
    with pytest.raises(TypeError, match=f"::{op}: seed must be int64"):
        call(save="8bit", seed=torch.tensor(1.0))


def test_bad_numbers() -> None:
    x, seed = torch.randn(3), torch.tensor(1)
    forward, backward = ops.coded_forward, ops.coded_backward
    code = forward(x, None, None, "normal", 8)[1]
    for bits in (0, 2, 16):
        with pytest.raises(ValueError, match=f"::coded_forward: bits must be 8 or 4, got {bits}"):
            forward(x, None, None, "normal", bits)
        with pytest.raises(ValueError, match=f"::coded_backward: bits must be 8 or 4, got {bits}"):
            backward(x, code, bits)

    with pytest.raises(ValueError, match="::coded_forward: seed must be an int64 scalar for p or"):
        forward(x, None, None, "normal", 8, 0.5)
    with pytest.raises(ValueError, match="::coded_forward: seed must be None without p and dither"):
        forward(x, None, seed, "normal", 8)


def test_every_gate_has_a_derivative_in_the_codebook() -> None:
    """Else fit.codebook has to run again, with the new gate."""
    x = np.linspace(-30, 30, 2**18)
    for gate in APPROXIMATE:
        derivative = oracle.reference(gate, oracle.DERIVATIVE, x)
        for bits in BITS:
            code = derivative * coded_oracle.LEVELS[bits] + coded_oracle.ZERO[bits]
            # A random rounding stays among the codes too.
            assert code.min() >= 0 and code.max() <= coded_oracle.NAN[bits] - 1
