"""Dropout in the pass of a gate alone: its mask and its probabilities, values, p and training,
random numbers, and what backward keeps.

Which elements are kept is what soi_oracle.py says.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import vmap
from torch.utils.checkpoint import checkpoint

from gelu_kernels import functional, reference
from tests.bits import differing, same
from tests.calls import DTYPES, SEED
from tests.oracles import oracle, soi_oracle

ops = torch.ops.gelu_kernels

# 2^-33 and 2^-32 round to no word and to one; 1 - 2^-33 is the least that drops every word.
SPECIAL_P = [0.0, 2.0**-1074, 2.0**-33, 2.0**-32, 0.1, 0.5, 1 - 2.0**-24, 1 - 2.0**-32]
ALL_DROPPED = [1 - 2.0**-34, 1 - 2.0**-53, 1.0]


def seed(device: str = "cpu") -> Tensor:
    return torch.tensor(SEED, device=device)


def kept(x: Tensor, p: float) -> Tensor:
    return soi_oracle.not_dropped(x.shape, SEED, p).to(x.device)


def drawn(n: int, p: float, number: int = 1) -> np.ndarray:
    """The mask of n elements."""
    x = torch.zeros((), dtype=torch.bfloat16).expand(n)
    _, mask = ops.gate_dropout_forward(x, None, torch.tensor(number), "normal", p)
    return soi_oracle.unpack(mask, n)


# The mask


@pytest.mark.parametrize("p", [*SPECIAL_P, *ALL_DROPPED])
def test_the_mask_of_a_p(p: float, device: str) -> None:
    x = torch.randn(3, 1111, device=device)
    y, mask = ops.gate_dropout_forward(x, None, seed(device), "normal", p)
    m = kept(x, p)
    assert torch.equal(mask.cpu(), soi_oracle.pack(m))
    assert same(y, soi_oracle.select(m, y)) and (y[m] != 0).all()
    assert p not in ALL_DROPPED or not mask.any()
    dx = ops.gate_dropout_backward(x, x, None, mask, "normal", p)
    assert same(dx, soi_oracle.select(m, dx))
    factor = 1 / (1 - p) if p < 1 else 0.0
    expected = (reference.normal(x.double()) * factor)[m]
    torch.testing.assert_close(y[m].double(), expected, rtol=6e-7, atol=0)


@pytest.mark.parametrize(
    "index", [(1,), (1001,), (2**34 - 100,), (5, 17, 100), (0, 1, 7), (2, 10_000, 3)], ids=str
)
def test_global_indices(index: tuple[int, ...], device: str) -> None:
    x = torch.randn(1700, device=device)
    _, mask = ops.gate_dropout_forward(x, None, seed(device), "normal", 0.4, *index)
    m = soi_oracle.not_dropped(x.shape, SEED, 0.4, *index)
    assert torch.equal(mask.cpu(), soi_oracle.pack(m))


def test_a_word_at_the_threshold_is_kept(device: str) -> None:
    """The word of an element is p 2^32 itself, and no other is."""
    x = torch.randn(100, device=device)
    words = soi_oracle.words(SEED, soi_oracle.global_index(100))
    for p in (words[[0, 57, 99]] / 2**32).tolist():
        m = kept(x, p)
        assert (words == p * 2**32).sum() == 1
        _, mask = ops.gate_dropout_forward(x, None, seed(device), "normal", p)
        _, of_glu = ops.glu_dropout_forward(x, x, seed(device), "normal", p)
        assert torch.equal(mask.cpu(), soi_oracle.pack(m))
        assert torch.equal(of_glu.cpu(), soi_oracle.pack(m))


def test_all_forms_draw_one_mask(device: str) -> None:
    x, up = torch.randn(2, 9, 33, device=device)
    masks = [
        ops.gate_dropout_forward(x, None, seed(device), "laplace", 0.25)[1],
        ops.gate_dropout_forward(x, up[0], seed(device), "normal", 0.25)[1],
        ops.glu_dropout_forward(x, up, seed(device), "normal", 0.25)[1],
        ops.glu_dropout_halves_forward(torch.cat([x, up], -1), seed(device), "normal", 0.25)[1],
    ]
    assert all(torch.equal(mask, masks[0]) for mask in masks)


# Statistics, of the CPU's masks, which are every backend's. The seeds are fixed, so that these pass
# always or never.


@pytest.mark.parametrize("p", [1e-5, 0.1, 0.3, 0.5, 0.9, 0.999])
def test_frequencies(p: float) -> None:
    n = 2**24
    dropped = n - int(drawn(n, p).sum(dtype=np.int64))
    assert abs(dropped - n * p) < 4 * math.sqrt(n * p * (1 - p))


@pytest.mark.parametrize("p", [2.0**-24, 1 - 2.0**-24])
def test_rare_elements(p: float) -> None:
    """So rare that each word is looked at."""
    n = 2**26
    m = drawn(n, p)
    rare = np.flatnonzero(m == (0 if p < 0.5 else 1))
    assert abs(len(rare) - 4) < 4 * 2
    of_rare = soi_oracle.words(1, rare)
    assert len(rare) > 0 and ((of_rare < p * 2**32) == (p < 0.5)).all()


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 5, 8, 16, 64, 128, 4096])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_pairs_are_independent(p: float, lag: int) -> None:
    """The elements of a pair are dropped together as often as independent ones."""
    n = 2**22
    m = drawn(n + lag, p, 2)
    both = int(((m[:-lag] == 0) & (m[lag:] == 0)).sum())
    assert abs(both - n * p**2) < 4.5 * math.sqrt(n * p**2 * (1 - p**2))
    of_pairs = int((m[:-lag] != m[lag:]).sum())
    q = 2 * p * (1 - p)
    assert abs(of_pairs - n * q) < 4.5 * math.sqrt(n * q * (1 - q))


# Values


@pytest.mark.parametrize("p", [0.1, 0.27, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_every_16_bit_input(dtype: torch.dtype, p: float, gate: str, device: str) -> None:
    """What is kept has the stated errors where the gate, or its derivative, is a normal number, and
    elsewhere those of a gate that is rounded in between."""
    x = oracle.every_16_bit_input(dtype)
    x = x[x.isfinite()].repeat(2).to(device)
    y, mask = ops.gate_dropout_forward(x, None, seed(device), gate, p)
    dx = ops.gate_dropout_backward(torch.ones_like(x), x, None, mask, gate, p)
    m = kept(x, p)
    for result, order, bound in ((y, oracle.VALUE, 0.57), (dx, oracle.DERIVATIVE, 0.68)):
        assert same(result, soi_oracle.select(m, result))
        of_gate = oracle.reference(gate, order, x.cpu().double().numpy())
        exact = of_gate / (1 - p)
        too_large = np.abs(exact) > torch.finfo(dtype).max
        beyond = torch.from_numpy(too_large).to(device) & m
        assert (result[beyond].abs() >= torch.finfo(dtype).max).all()
        units = oracle.ulp_errors(result.cpu(), exact)
        looked_at = ~too_large & m.cpu().numpy()
        normal = looked_at & (np.abs(of_gate) >= torch.finfo(dtype).tiny)
        assert units[normal].max() <= bound
        between = oracle.ulp(of_gate, dtype) / oracle.ulp(exact, dtype) / (1 - p) / 2
        assert (units <= 0.501 + between)[looked_at].all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_special_values(dtype: torch.dtype, gate: str, device: str) -> None:
    """What is dropped is +0, whatever it was; what is kept is as the gate has it, but that its
    least value in float16 is doubled before it is rounded."""
    numbers = [torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 1.0]
    x = torch.tensor(numbers, device=device, dtype=dtype).repeat(200)
    m = kept(x, 0.5)
    y, mask = ops.gate_dropout_forward(x, None, seed(device), gate, 0.5)
    expected = soi_oracle.select(m, 2 * ops.gate_forward(x, None, gate))
    least = 2.0**-24 if dtype == torch.float16 else 0
    torch.testing.assert_close(y, expected, rtol=0, atol=least, equal_nan=True)
    assert torch.equal(y.signbit() & ~y.isnan(), expected.signbit() & ~y.isnan())
    for dy in (torch.ones_like(x), torch.full_like(x, torch.inf), torch.full_like(x, torch.nan)):
        dx = ops.gate_dropout_backward(dy, x, None, mask, gate, 0.5)
        expected = soi_oracle.select(m, ops.gate_backward(2 * dy, x, None, gate))
        assert differing(dx, expected) == 0
        for gradient in ops.glu_dropout_backward(dy, x, x, mask, gate, 0.5):
            assert same(gradient, soi_oracle.select(m, gradient))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_gradient_of_the_bias_sums_the_unrounded_dx(dtype: torch.dtype, device: str) -> None:
    """In float32, or float64, it is not rounded: then it is summed as the gate's own."""
    for shape in ((1000, 37), (3, 2000), (700, 600)):
        x, dy = torch.randn(2, *shape, device=device, dtype=torch.float64).to(dtype)
        bias = torch.randn(shape[-1:], device=device, dtype=torch.float64).to(dtype)
        _, mask = ops.gate_dropout_forward(x, bias, seed(device), "normal", 0.5)
        dx, dbias = ops.gate_dropout_backward_bias(dy, x, bias, mask, "normal", 0.5)
        assert same(dx, ops.gate_dropout_backward(dy, x, bias, mask, "normal", 0.5))
        # Twice a number is exact, and a zero gradient adds zeros.
        given = soi_oracle.select(kept(x, 0.5), 2 * dy)
        _, expected = ops.gate_backward_bias(given, x, bias, "normal")
        assert same(dbias, expected)


# p and training

Function = Callable[..., Tensor]


def functions() -> list[tuple[Function, Function, tuple[tuple[int, ...], ...]]]:
    """With dropout, without it, and the shapes of the operands."""
    own, f = (7, 33), functional
    tanh, laplace = {"approximate": "tanh"}, {"gate": "laplace"}
    return [
        (partial(f.bias_gelu_dropout, **tanh), partial(f.bias_gelu, **tanh), (own, own[1:])),
        (partial(f.gate_dropout, **laplace), partial(f.gate, **laplace), (own,)),
        (partial(f.gate_dropout, **laplace), partial(f.gate, **laplace), (own, own[1:])),
        (partial(f.glu_dropout, **laplace), partial(f.glu, **laplace), (own, own)),
        (partial(f.glu_dropout, **laplace), partial(f.glu, **laplace), ((7, 66),)),
    ]


every_function = pytest.mark.parametrize("case", functions(), ids=["bias_gelu", *"gbuh"])


@every_function
@pytest.mark.parametrize("options", [{"training": False}, {"p": 0.0}], ids=str)
def test_without_dropout_nothing_is_drawn(case: tuple, options: dict, device: str) -> None:
    function, plain, shapes = case
    operands = [torch.randn(shape, device=device, requires_grad=True) for shape in shapes]
    generator = torch.Generator(device).manual_seed(1)
    before = generator.get_state()
    y, expected = function(*operands, **options, generator=generator), plain(*operands)
    assert same(y, expected)
    assert torch.equal(generator.get_state(), before)
    dy = torch.randn_like(y)
    gradients = (torch.autograd.grad(t, operands, dy) for t in (y, expected))
    assert all(map(same, *gradients))


@every_function
def test_a_p_of_1(case: tuple, device: str) -> None:
    function, _, shapes = case
    operands = [torch.full(s, torch.inf, device=device, requires_grad=True) for s in shapes]
    y = function(*operands, p=1.0)
    assert same(y, torch.zeros_like(y))
    for gradient in torch.autograd.grad(y, operands, torch.full_like(y, torch.nan)):
        assert same(gradient, torch.zeros_like(gradient))


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan, math.inf])
@pytest.mark.parametrize("training", [True, False])
def test_a_bad_p(p: float, training: bool, device: str) -> None:
    x = torch.ones(2, 4, device=device)
    calls = {
        "fused_bias_gelu_dropout": lambda: functional.bias_gelu_dropout(
            x, x[0], p, training=training
        ),
        "fused_gate_dropout": lambda: functional.gate_dropout(x, p=p, training=training),
        "fused_glu_dropout": lambda: functional.glu_dropout(x, x, p, training=training),
    }
    mask = torch.zeros(1, dtype=torch.uint8, device=device)
    half = mask[:0].new_zeros(1)
    calls |= {
        "gate_dropout_forward": lambda: ops.gate_dropout_forward(
            x, None, seed(device), "normal", p
        ),
        "gate_dropout_backward": lambda: ops.gate_dropout_backward(x, x, None, mask, "normal", p),
        "gate_dropout_backward_bias": lambda: ops.gate_dropout_backward_bias(
            x, x, x[0], mask, "normal", p
        ),
        "glu_dropout_forward": lambda: ops.glu_dropout_forward(x, x, seed(device), "normal", p),
        "glu_dropout_backward": lambda: ops.glu_dropout_backward(x, x, x, mask, "normal", p),
        "glu_dropout_halves_forward": lambda: ops.glu_dropout_halves_forward(
            x, seed(device), "normal", p
        ),
        "glu_dropout_halves_backward": lambda: ops.glu_dropout_halves_backward(
            x[:, :2], x, half, "normal", p
        ),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=f"gelu_kernels::{name}: p must be from 0 to 1, got "):
            call()


# Random numbers


@every_function
def test_a_call_draws_one_seed(case: tuple, device: str) -> None:
    """As torch.randint does, from the generator that is given and from no other."""
    function, _, shapes = case
    operands = [torch.randn(shape, device=device) for shape in shapes]
    generator, other = (torch.Generator(device).manual_seed(8) for _ in range(2))
    default = torch.get_rng_state()
    for _ in range(2):
        y = function(*operands, p=0.3, generator=generator)
        number = int(torch.randint(2**63 - 1, (), generator=other, device=device))
        assert torch.equal(y.cpu() != 0, soi_oracle.not_dropped(y.shape, number, 0.3))
    assert torch.equal(torch.get_rng_state(), default)


def test_a_generator_of_another_device() -> None:
    x = torch.ones(2, 4, device="meta")
    for op, operands in (("bias_gelu", (x, x[0])), ("gate", (x,)), ("glu", (x,))):
        message = f"gelu_kernels::fused_{op}_dropout: generator must be on the device of x, meta"
        with pytest.raises(ValueError, match=message):
            getattr(functional, f"{op}_dropout")(*operands, generator=torch.Generator())


@pytest.mark.parametrize("biased", [False, True])
def test_vmap_randomness(biased: bool) -> None:
    x, bias = torch.ones(5, 400), [torch.zeros(400)] if biased else []
    in_dims = (0, *(None for _ in bias))
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(functional.gate_dropout, in_dims)(x, *bias)
    torch.manual_seed(1)
    alone = functional.gate_dropout(x[0], *bias)
    torch.manual_seed(1)
    same_for_all = vmap(functional.gate_dropout, in_dims, randomness="same")(x, *bias)
    assert all(torch.equal(row, alone) for row in same_for_all)
    different = vmap(functional.gate_dropout, in_dims, randomness="different")(x, *bias)
    assert len({tuple(row.tolist()) for row in different}) == 5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_vmap_of_a_gradient_rounds_no_sum(dtype: torch.dtype) -> None:
    """Within a unit of the kernels, where a sum that is rounded to 16 bits is many off."""
    x, bias = -6 + 4 * torch.rand(5, 400), -2 * torch.rand(400)
    x, bias = x.to(dtype), bias.to(dtype)
    _, mask = ops.gate_dropout_forward(x[0], bias, seed(), "normal", 0.5)

    def gradient(x: Tensor) -> Tensor:
        return ops.gate_dropout_backward(torch.ones_like(x), x, bias, mask, "normal", 0.5)

    expected = torch.stack([gradient(row) for row in x])
    info = torch.finfo(dtype)
    least = info.smallest_normal * info.eps
    torch.testing.assert_close(vmap(gradient)(x), expected, rtol=info.eps, atol=least)


@every_function
def test_checkpoint_draws_the_mask_again(case: tuple, device: str) -> None:
    function, _, shapes = case
    operands = [torch.randn(shape, device=device, requires_grad=True) for shape in shapes]

    def gradients(call: Function) -> tuple[Tensor, ...]:
        torch.manual_seed(3)
        y = call(*operands)
        functional.gate_dropout(torch.ones(3, device=device))  # another draw comes between
        return (y, *torch.autograd.grad(y, operands, torch.ones_like(y)))

    again = gradients(lambda *t: checkpoint(function, *t, use_reentrant=False))
    assert all(map(same, again, gradients(function)))


# What backward keeps


@every_function
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_saved_bytes(case: tuple, dtype: torch.dtype, device: str) -> None:
    """The operands, and a bit for an element."""
    function, _, shapes = case
    operands = [torch.randn(s, device=device).to(dtype).requires_grad_() for s in shapes]
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        y = function(*operands)
    assert sum(t.nbytes for t in saved) == sum(t.nbytes for t in operands) + (y.numel() + 7) // 8
    assert {t.data_ptr() for t in operands} < {t.data_ptr() for t in saved}


def test_modifying_the_mask_raises(device: str) -> None:
    x = torch.randn(9, device=device, requires_grad=True)
    y, mask = ops.gate_dropout_forward(x, None, seed(device), "normal", 0.5)
    assert not mask.requires_grad
    mask.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_strided_mask(device: str) -> None:
    x, bias = torch.randn(9, 33, device=device), torch.randn(33, device=device)
    _, mask = ops.gate_dropout_forward(x, bias, seed(device), "normal", 0.5)
    strided = torch.stack([mask, ~mask], 1)[:, 0]
    ones = torch.ones_like(x)
    for op, operands in (
        (ops.gate_dropout_backward, (ones, x, bias)),
        (ops.gate_dropout_backward_bias, (ones, x, bias)),
        (ops.glu_dropout_backward, (ones, x, x)),
        (ops.glu_dropout_halves_backward, (ones, torch.cat([x, x], -1))),
    ):
        of_strided, expected = (op(*operands, m, "normal", 0.5) for m in (strided, mask))
        assert all(map(same, of_strided, expected))


def test_autocast_casts_what_stands_beside_x() -> None:
    x = torch.randn(4, 8).bfloat16()
    bias, up = torch.randn(8), torch.randn(4, 8)
    with torch.autocast("cpu", torch.bfloat16):
        torch.manual_seed(0)
        ours = functional.bias_gelu_dropout(x, bias), functional.glu_dropout(x, up)
    torch.manual_seed(0)
    expected = (
        functional.bias_gelu_dropout(x, bias.bfloat16()),
        functional.glu_dropout(x, up.bfloat16()),
    )
    assert all(map(same, ours, expected))


@pytest.mark.parametrize("form", ["gate", "bias", "glu", "halves"])
def test_jagged_tensors(form: str) -> None:
    """The mask of their values."""
    parts = [torch.randn(n, 6) for n in (3, 0, 5)]
    x = torch.nested.nested_tensor(parts, layout=torch.jagged)
    up = torch.nested.nested_tensor_from_jagged(torch.randn(8, 6), x.offsets())
    values, bias = torch.cat(parts), torch.randn(6)
    function, beside, of_values = {
        "gate": (functional.gate_dropout, (), ()),
        "bias": (functional.gate_dropout, (bias,), (bias,)),
        "glu": (functional.glu_dropout, (up,), (up.values(),)),
        "halves": (functional.glu_dropout, (), ()),
    }[form]
    torch.manual_seed(0)
    y = function(x, *beside)
    torch.manual_seed(0)
    assert same(y.values(), function(values, *of_values))
    assert torch.equal(y.offsets(), x.offsets())


@pytest.mark.parametrize("function", [functional.gate_dropout, functional.glu_dropout])
def test_jagged_tensors_draw_from_the_generator(function: Function) -> None:
    x = torch.nested.nested_tensor([torch.randn(n, 6) for n in (3, 5)], layout=torch.jagged)
    ours, expected = (torch.Generator().manual_seed(8) for _ in range(2))
    default = torch.get_rng_state()
    y = function(x, generator=ours)
    assert same(y.values(), function(x.values(), generator=expected))
    assert torch.equal(ours.get_state(), expected.get_state())
    assert torch.equal(torch.get_rng_state(), default)


# With a code in place of x: test_coded.py has the code itself


@pytest.mark.parametrize("save, bits, bound", [("8bit", 8, 0.0025), ("4bit", 4, 0.0500001)])
@pytest.mark.parametrize("biased", [False, True])
def test_saved_codes(biased: bool, save: str, bits: int, bound: float, device: str) -> None:
    """The mask and the values of a call without, from nothing but codes; the derivative of what is
    kept has the error of a code, and what is dropped has none."""
    p, x = 0.3, torch.randn(7, 33, device=device, requires_grad=True)
    bias = [torch.randn(33, device=device, requires_grad=True)] if biased else []
    saved = []
    results = []
    for options in ({}, {"save": save}, {"save": save, "dither": True}):
        torch.manual_seed(0)
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t: saved.append((t.dtype, t.nbytes)) or t, lambda t: t
        ):
            y = functional.gate_dropout(x, *bias, p=p, gate="logistic", **options)
        results.append([y, *torch.autograd.grad(y.sum(), [x, *bias])])
    (y, dx, *dbias), *coded = results
    assert saved[-2:] == 2 * [(torch.uint8, -(-7 * 33 * bits // 8))]
    for (coded_y, coded_dx, *coded_dbias), steps in zip(coded, (1, 2), strict=True):
        assert same(coded_y, y)
        assert (coded_dx[y == 0] == 0).all()
        assert (coded_dx - dx).abs().max() <= steps * bound / (1 - p) + 1e-6
        for a, b in zip(coded_dbias, dbias, strict=True):
            assert (a - b).abs().max() <= 7 * (steps * bound / (1 - p) + 1e-6)


def test_saved_codes_without_dropout(device: str) -> None:
    x = torch.randn(5, 9, device=device, requires_grad=True)
    expected = torch.autograd.grad(functional.gate(x, save="8bit").sum(), x)
    for options in ({"training": False}, {"p": 0.0}):
        y = functional.gate_dropout(x, save="8bit", **options)
        assert same(y, functional.gate(x))
        assert all(map(same, torch.autograd.grad(y.sum(), x), expected))


def test_dithered_codes_without_dropout(device: str) -> None:
    x = torch.randn(5, 9, device=device, requires_grad=True)
    for options in ({"training": False}, {"p": 0.0}):
        results = []
        for function in (partial(functional.gate_dropout, **options), functional.gate):
            torch.manual_seed(0)
            y = function(x, save="4bit", dither=True)
            results.append((y, *torch.autograd.grad(y.sum(), x)))
        assert all(map(same, *results))


def test_no_code_without_a_gradient(device: str) -> None:
    x = torch.randn(5, 9, device=device)
    for operands in ((x,), (x, x[0])):
        torch.manual_seed(0)
        expected = functional.gate_dropout(*operands)
        torch.manual_seed(0)
        with torch.profiler.profile() as profile:
            assert same(functional.gate_dropout(*operands, save="4bit"), expected)
        assert "gelu_kernels::coded_forward" not in {event.name for event in profile.events()}


@pytest.mark.parametrize(
    "op, call",
    [
        ("fused_bias_gelu_dropout", lambda x, **o: functional.bias_gelu_dropout(x, x[0], **o)),
        ("fused_gate_dropout", functional.gate_dropout),
    ],
)
def test_bad_save(op: str, call: Callable[..., Tensor]) -> None:
    x = torch.randn(3, 4)
    before = torch.get_rng_state()
    message = f"gelu_kernels::{op}: save must be None, '8bit' or '4bit', got '2bit'"
    with pytest.raises(ValueError, match=message):
        call(x, save="2bit")
    with pytest.raises(ValueError, match=f"::{op}: dither must be False without save, got True"):
        call(x, dither=True)
    assert torch.equal(torch.get_rng_state(), before)
