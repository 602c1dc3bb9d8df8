"""Dropout in the same pass as a gate: its mask and probabilities, values, p, training and codes.

soi_oracle.py says which elements are kept.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import vmap

from gelu_kernels import functional, reference
from tests.bits import differing, same
from tests.calls import CALLS, DTYPES, GATES, SEED, Call
from tests.cases import each
from tests.families.test_coded import gradients, with_what_is_saved
from tests.oracles import coded_oracle, oracle, soi_oracle

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


@each(p=[*SPECIAL_P, *ALL_DROPPED])
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


def test_a_word_at_the_threshold_is_kept(device: str) -> None:
    """An element whose word is exactly p 2^32 is kept; no other element has this word."""
    x = torch.full((100,), 1.5, device=device)
    words = soi_oracle.words_of(SEED, 100)
    for p in (words[[0, 57, 99]] / 2**32).tolist():
        m = kept(x, p)
        assert (words == p * 2**32).sum() == 1
        _, mask = ops.gate_dropout_forward(x, None, seed(device), "normal", p)
        _, of_glu = ops.glu_dropout_forward(x, x, seed(device), "normal", p)
        assert torch.equal(mask.cpu(), soi_oracle.pack(m))
        assert torch.equal(of_glu.cpu(), soi_oracle.pack(m))
        for bits in coded_oracle.ZERO:
            y, code = ops.coded_forward(x, None, seed(device), "normal", bits, p)
            assert torch.equal(y != 0, m)
            codes = coded_oracle.unpack(code, 100, bits)
            assert np.array_equal(codes != coded_oracle.ZERO[bits], m.cpu())


def test_all_forms_draw_one_mask(device: str) -> None:
    x, up = torch.randn(2, 9, 33, device=device)
    masks = [
        ops.gate_dropout_forward(x, None, seed(device), "laplace", 0.25)[1],
        ops.gate_dropout_forward(x, up[0], seed(device), "normal", 0.25)[1],
        ops.glu_dropout_forward(x, up, seed(device), "normal", 0.25)[1],
        ops.glu_dropout_halves_forward(torch.cat([x, up], -1), seed(device), "normal", 0.25)[1],
    ]
    assert all(torch.equal(mask, masks[0]) for mask in masks)


# Statistics of the CPU's masks, which are every backend's. The seeds are fixed: a test passes
# always or never.


@each(p=[1e-5, 0.1, 0.3, 0.5, 0.9, 0.999])
def test_frequencies(p: float) -> None:
    n = 2**24
    dropped = n - int(drawn(n, p).sum(dtype=np.int64))
    assert abs(dropped - n * p) < 4 * math.sqrt(n * p * (1 - p))


@each(p=[2.0**-24, 1 - 2.0**-24])
def test_rare_elements(p: float) -> None:
    """So rare that the word of each is compared with p."""
    n = 2**26
    m = drawn(n, p)
    rare = np.flatnonzero(m == (0 if p < 0.5 else 1))
    assert abs(len(rare) - 4) < 4 * 2
    of_rare = soi_oracle.words(1, rare)
    assert len(rare) > 0 and ((of_rare < p * 2**32) == (p < 0.5)).all()


@each(p=[0.1, 0.5], lag=[1, 2, 3, 4, 5, 8, 16, 64, 128, 4096])
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


@each(dtype=[torch.float16, torch.bfloat16], p=[0.1, 0.27, 0.5, 0.9], gate=GATES)
def test_every_16_bit_input(dtype: torch.dtype, p: float, gate: str, device: str) -> None:
    """Kept elements have the stated errors where the gate, or its derivative, is a normal number,
    and elsewhere the errors of a gate that is rounded in between."""
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


@each(dtype=DTYPES, gate=GATES)
def test_special_values(dtype: torch.dtype, gate: str, device: str) -> None:
    """A dropped element is +0, whatever it was; a kept one is the gate's, except that the least
    value in float16 is doubled before it is rounded."""
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


@each(dtype=DTYPES)
def test_the_gradient_of_the_bias_sums_the_unrounded_dx(dtype: torch.dtype, device: str) -> None:
    """In float32 and float64 nothing is rounded: the sum is the gate's own."""
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


@each(case=functions(), options=[{"training": False}, {"p": 0.0}])
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


@each(call=[call for call in CALLS if "p" in call.numbers], p=[-0.1, 1.1, math.nan, math.inf])
def test_a_bad_p(call: Call, p: float, device: str) -> None:
    tensors = call.inputs((2, 4), lambda *s: torch.ones(s, device=device))
    message = f"gelu_kernels::{call.op.name}: p must be from 0 to 1, got "
    with pytest.raises(ValueError, match=message):
        replace(call, options=call.options | {"p": p}).through_torch(*tensors)


@each(
    function=[functional.bias_gelu_dropout, functional.gate_dropout, functional.glu_dropout],
    p=[-0.1, 1.1, math.nan],
    training=[True, False],
)
def test_a_bad_p_of_a_function(function: Function, p: float, training: bool) -> None:
    """In evaluation too, where nothing is dropped."""
    x = torch.ones(2, 4)
    operands = (x, x[0]) if function is functional.bias_gelu_dropout else (x,)
    with pytest.raises(ValueError, match=rf"^{function.__name__}\(\): p must be from 0 to 1"):
        function(*operands, p=p, training=training)


@each(case=functions())
def test_a_p_of_1(case: tuple, device: str) -> None:
    function, _, shapes = case
    operands = [torch.full(s, torch.inf, device=device, requires_grad=True) for s in shapes]
    y = function(*operands, p=1.0)
    assert same(y, torch.zeros_like(y))
    for gradient in torch.autograd.grad(y, operands, torch.full_like(y, torch.nan)):
        assert same(gradient, torch.zeros_like(gradient))


@each(dtype=[torch.float16, torch.bfloat16])
def test_vmap_of_a_gradient_rounds_no_sum(dtype: torch.dtype) -> None:
    """Within a unit of the kernels; a sum rounded to 16 bits would be many units off."""
    x, bias = -6 + 4 * torch.rand(5, 400), -2 * torch.rand(400)
    x, bias = x.to(dtype), bias.to(dtype)
    _, mask = ops.gate_dropout_forward(x[0], bias, seed(), "normal", 0.5)

    def gradient(x: Tensor) -> Tensor:
        return ops.gate_dropout_backward(torch.ones_like(x), x, bias, mask, "normal", 0.5)

    expected = torch.stack([gradient(row) for row in x])
    info = torch.finfo(dtype)
    least = info.smallest_normal * info.eps
    torch.testing.assert_close(vmap(gradient)(x), expected, rtol=info.eps, atol=least)


# What is saved for backward


@each(case=functions(), dtype=DTYPES)
def test_saved_bytes(case: tuple, dtype: torch.dtype, device: str) -> None:
    """The operands, and a bit for each element."""
    function, _, shapes = case
    operands = [torch.randn(s, device=device).to(dtype).requires_grad_() for s in shapes]
    y, saved = with_what_is_saved(function, *operands)
    assert sum(t.nbytes for t in saved) == sum(t.nbytes for t in operands) + (y.numel() + 7) // 8
    assert {t.data_ptr() for t in operands} < {t.data_ptr() for t in saved}


# With a code saved instead of x; test_coded.py tests the code itself


@each(biased=[False, True], code=[("8bit", 0.0025), ("4bit", 0.0500001)])
def test_saved_codes(biased: bool, code: tuple[str, float], device: str) -> None:
    """The mask and values of a call without a code. The derivative of a kept element has a
    code's error; that of a dropped one is 0."""
    save, bound = code
    p, shapes = 0.3, [(7, 33), (33,)][: 1 + biased]
    operands = [torch.randn(shape, device=device, requires_grad=True) for shape in shapes]
    function = partial(functional.gate_dropout, p=p, gate="logistic")
    y, dx, *dbias = gradients(function, *operands)
    for options, steps in (({}, 1), ({"dither": True}, 2)):
        coded = partial(function, save=save, **options)
        _, saved = with_what_is_saved(coded, *operands)
        assert [(t.dtype, t.nbytes) for t in saved] == [
            (torch.uint8, -(-7 * 33 * int(save[0]) // 8))
        ]
        coded_y, coded_dx, *coded_dbias = gradients(coded, *operands)
        assert same(coded_y, y)
        assert (coded_dx[y == 0] == 0).all()
        assert (coded_dx - dx).abs().max() <= steps * bound / (1 - p) + 1e-6
        for a, b in zip(coded_dbias, dbias, strict=True):
            assert (a - b).abs().max() <= 7 * (steps * bound / (1 - p) + 1e-6)


@each(
    options=[{"training": False}, {"p": 0.0}],
    saved=[{"save": "8bit"}, {"save": "4bit", "dither": True}],
)
def test_saved_codes_without_dropout(options: dict, saved: dict, device: str) -> None:
    x = torch.randn(5, 9, device=device, requires_grad=True)
    functions = partial(functional.gate_dropout, **options), functional.gate
    assert all(map(same, *(gradients(partial(f, **saved), x) for f in functions)))


def test_saving_a_code_without_a_gradient(device: str) -> None:
    """No code is made (see test_coded.py), and the same elements are dropped."""
    x = torch.randn(5, 9, device=device)
    for operands in ((x,), (x, x[0])):
        results = []
        for options in ({}, {"save": "4bit"}):
            torch.manual_seed(0)
            results.append(functional.gate_dropout(*operands, **options))
        assert same(*results)
