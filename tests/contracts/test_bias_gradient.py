"""The bias gradient: the sum of dx over all but the last dimension, in the same pass as dx.

Compared with the sum in float64, its error is at most that of a sum in float32 (float64) over
blocks of rows, then over the blocks.
"""

import math
from itertools import product

import torch
from torch import Tensor

from gelu_kernels import functional, reference
from tests import bits
from tests.calls import DTYPES, Shape, normal
from tests.cases import each

ops = torch.ops.gelu_kernels

GATES = {"none": "normal", "tanh": "normal_tanh", "sigmoid": "logistic_1702"}
HALF = [torch.float16, torch.bfloat16]
BLOCK, BLOCKS = 256, 80  # the most rows in a block, and the most blocks in 20,000 rows

# On both sides of the boundaries of blocks of rows and of tiles of columns.
SHAPES: list[Shape] = [
    *product((1, 15, 16, 17, 63, 64, 65, 1023, 4097), (1, 2, 31)),
    *product((1, 17, 65), (32, 33, 1023, 1024, 1025, 3000)),
    (20_000, 3),
    (20_000, 33),
    (1023, 1025),
]


def numbers(shape: Shape, dtype: torch.dtype, device: str) -> list[Tensor]:
    """dy, x and bias."""
    return [normal(*s, dtype=dtype, device=device) for s in (shape, shape, shape[-1:])]


def exact_dx(dy: Tensor, x: Tensor, bias: Tensor, approximate: str = "none") -> Tensor:
    total = (x.double() + bias.double()).requires_grad_()
    return torch.autograd.grad(reference.gelu(total, approximate), total, dy.double())[0]


def check(dy: Tensor, x: Tensor, bias: Tensor, approximate: str = "none") -> tuple[Tensor, Tensor]:
    """gate_backward_bias, after a comparison with float64."""
    dx, dbias = ops.gate_backward_bias(dy, x, bias, GATES[approximate])
    assert dbias.shape == bias.shape and dbias.dtype == bias.dtype
    exact = exact_dx(dy, x, bias, approximate)
    half_ulp = torch.finfo(x.dtype).eps / 2
    eps = torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps / 2
    # The error of g' is 4 ULP of 32 (64) bits or, in 16 bits, 1/16 of what its rounding costs. In
    # float64 the reference errs as much.
    derivative = {8: 32 * eps, 4: 8 * eps, 2: half_ulp / 16}[x.itemsize]
    subnormal = torch.finfo(x.dtype).smallest_normal * half_ulp

    error = (dx.double() - exact).abs()
    assert (error <= (derivative + half_ulp) * 1.13 * dy.double().abs() + subnormal).all()

    leading = tuple(range(x.dim() - 1))
    expected = exact.sum(leading)
    size = dy.double().abs().sum(leading)  # |g'| < 1.13
    rows = x.shape[:-1].numel()
    depth = min(rows, BLOCK) + min(math.ceil(rows / 16), BLOCKS)
    bound = (depth * eps + derivative) * 1.13 * size + half_ulp * expected.abs() + subnormal
    assert ((dbias.double() - expected).abs() <= bound).all()
    return dx, dbias


@each(shape=[*SHAPES, (2, 3, 4, 5)], dtype=DTYPES)
def test_shapes(shape: Shape, dtype: torch.dtype, device: str) -> None:
    check(*numbers(shape, dtype, device))


@each(approximate=GATES, dtype=DTYPES)
def test_gates(approximate: str, dtype: torch.dtype, device: str) -> None:
    """The public function has the same bits."""
    dy, x, bias = numbers((100, 37), dtype, device)
    dx, dbias = check(dy, x, bias, approximate)
    x.requires_grad_(), bias.requires_grad_()
    functional.bias_gelu(x, bias, approximate=approximate).backward(dy)
    assert bits.same(x.grad, dx) and bits.same(bias.grad, dbias)


@each(dtype=DTYPES)
def test_each_element_counts_once_in_its_own_column(dtype: torch.dtype, device: str) -> None:
    """g'(0) = 1/2: a dy of 2 among zeros gives exactly 1 in its column, and 0 elsewhere."""
    x = torch.zeros(40, 1060, dtype=dtype, device=device)
    rows = [0, 15, 16, 39]
    columns = [0, 31, 32, 1023, 1024, 1055, 1056, 1059]
    for shift in range(len(columns)):
        dy = torch.zeros_like(x)
        dy[rows, (columns[shift:] + columns)[: len(rows)]] = 2  # a column for each row
        dx, dbias = ops.gate_backward_bias(dy, x, torch.zeros_like(x[0]), "normal")
        assert torch.equal(dx, dy / 2)
        assert torch.equal(dbias, dy.sum(0) / 2)


@each(dtype=DTYPES)
def test_small_terms_are_not_lost_in_a_large_sum(dtype: torch.dtype, device: str) -> None:
    """1 + 2^-24 + 2^-24 + ... is 1 in float32 if added in order. g'(40) = 1."""
    rows = 20_000
    small = 2.0**-24 if dtype != torch.float64 else 2.0**-53
    dy = torch.full((rows, 3), small, dtype=dtype, device=device)
    dy[0] = 1
    x = torch.full_like(dy, 40)
    _, dbias = ops.gate_backward_bias(dy, x, torch.zeros_like(dy[0]), "normal")
    rounding = torch.finfo(dtype).eps / 2 if dtype.itemsize == 2 else 0
    error = (dbias.double() - (1 + (rows - 1) * small)).abs()
    assert (error <= BLOCK * small + rounding).all()


@each(dtype=HALF)
def test_terms_are_not_rounded_to_16_bits(dtype: torch.dtype, device: str) -> None:
    """The sum of dy g'(x) and of -round(g'(x)), many times each, is what the rounding cost."""
    rows, columns = 64, 40
    a = torch.linspace(-1.7, 1.7, columns, dtype=torch.float64, device=device).to(dtype)
    one, zero = torch.ones_like(a), torch.zeros_like(a)
    exact = exact_dx(one, a, zero)
    rounded = exact.to(dtype)
    x = torch.stack([a, torch.full_like(a, 40)]).repeat(rows, 1)
    dy = torch.stack([one, -rounded]).repeat(rows, 1)
    _, dbias = ops.gate_backward_bias(dy, x, zero, "normal")
    expected = rows * (exact - rounded.double())
    half_ulp = torch.finfo(dtype).eps / 2
    assert expected.abs().max() > rows * half_ulp / 8
    # The errors of g' in 16 bits, and of the sum in float32.
    atol = 2 * rows * (half_ulp / 16 + 2 * rows * 2**-24)
    torch.testing.assert_close(dbias.double(), expected, rtol=half_ulp, atol=atol)


@each(dtype=HALF)
def test_16_bits_are_summed_in_32(dtype: torch.dtype, device: str) -> None:
    """A sum of ones sticks at 256 in bfloat16 and at 2048 in float16."""
    ones = torch.ones(4096, 3, dtype=dtype, device=device)
    _, dbias = ops.gate_backward_bias(ones, 40 * ones, torch.zeros_like(ones[0]), "normal")
    assert torch.equal(dbias, torch.full_like(dbias, 4096))


def test_nan_stays_in_its_column(device: str) -> None:
    x = torch.zeros(100, 40, device=device)
    x[77, 33] = torch.nan
    _, dbias = ops.gate_backward_bias(torch.ones_like(x), x, torch.zeros_like(x[0]), "normal")
    expected = torch.full_like(dbias, 50)
    expected[33] = torch.nan
    torch.testing.assert_close(dbias, expected, rtol=0, atol=0, equal_nan=True)
