"""The bias gradient: the sum of dx over all but the last dimension, in the same pass as dx.

Its error against the sum in float64 is bounded by that of a sum in float32 (float64) over blocks of
rows, then over blocks; its bits depend on the shape alone.
"""

import math

import bits
import pytest
import torch
from torch import Tensor

from gelu_kernels import functional, reference

ops = torch.ops.gelu_kernels

GATES = {"none": "normal", "tanh": "normal_tanh", "sigmoid": "logistic_1702"}
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
BLOCK, BLOCKS = 256, 80  # at most so many rows in a block, and blocks in 20,000 rows

# On both sides of the boundaries of blocks of rows and of tiles of columns.
SHAPES = [
    *(
        (rows, columns)
        for rows in (1, 15, 16, 17, 63, 64, 65, 1023, 4097)
        for columns in (1, 2, 31)
    ),
    *((rows, columns) for rows in (1, 17, 65) for columns in (32, 33, 1023, 1024, 1025, 3000)),
    (20_000, 3),
    (20_000, 33),
    (1023, 1025),
]


def random(shape: tuple[int, ...], dtype: torch.dtype, device: str, seed: int) -> Tensor:
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64, device=device).to(dtype)


def exact_dx(dy: Tensor, x: Tensor, bias: Tensor, approximate: str = "none") -> Tensor:
    total = (x.double() + bias.double()).detach().requires_grad_()
    return torch.autograd.grad(reference.gelu(total, approximate), total, dy.double())[0]


def columns_of(t: Tensor) -> Tensor:
    return t.reshape(t.numel() // max(1, t.size(-1)), t.size(-1))


def check(dy: Tensor, x: Tensor, bias: Tensor, approximate: str = "none") -> tuple[Tensor, Tensor]:
    """gate_backward_bias, after a comparison with float64."""
    dx, dbias = ops.gate_backward_bias(dy, x, bias, GATES[approximate])
    assert dbias.shape == bias.shape and dbias.dtype == bias.dtype
    exact = exact_dx(dy, x, bias, approximate)
    half_ulp = torch.finfo(x.dtype).eps / 2
    eps = torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps / 2
    # g' is good to 4 ULP of 32 (64) bits, or, in 16 bits, to 1/16 of what its rounding costs. In
    # float64 the reference errs as much.
    derivative = {8: 32 * eps, 4: 8 * eps, 2: half_ulp / 16}[x.itemsize]
    subnormal = torch.finfo(x.dtype).smallest_normal * half_ulp

    error = (dx.double() - exact).abs()
    assert (error <= (derivative + half_ulp) * 1.13 * dy.double().abs() + subnormal).all()

    expected = columns_of(exact).sum(0)
    size = columns_of(dy).double().abs().sum(0)  # |g'| < 1.13
    rows = columns_of(dy).size(0)
    depth = min(rows, BLOCK) + min(math.ceil(rows / 16), BLOCKS)
    bound = (depth * eps + derivative) * 1.13 * size + half_ulp * expected.abs() + subnormal
    assert ((dbias.double() - expected).abs() <= bound).all()
    return dx, dbias


@pytest.fixture
def thread_count():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def many_rows(request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params["device"] == "triton_interpreter":
        pytest.skip("needs a GPU: Triton's interpreter takes a minute for so many rows")


def random_case(shape, dtype, device):
    return [random(s, dtype, device, seed) for seed, s in enumerate((shape, shape, shape[-1:]))]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [s for s in SHAPES if s[0] < 1000], ids=str)
def test_shapes(shape, dtype, device):
    check(*random_case(shape, dtype, device))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [s for s in SHAPES if s[0] >= 1000], ids=str)
def test_shapes_of_many_rows(shape, dtype, device, many_rows):
    check(*random_case(shape, dtype, device))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_number_of_threads_changes_nothing(shape, dtype, thread_count):
    case = random_case(shape, dtype, "cpu")
    expected = ops.gate_backward_bias(*case, "normal")
    for threads in (1, 2, 3, 5, 16):
        thread_count(threads)
        for t, e in zip(ops.gate_backward_bias(*case, "normal"), expected, strict=True):
            assert bits.same(t, e)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("approximate", reference.gates)
def test_gates(approximate, dtype, device):
    dy, x, bias = (random(s, dtype, device, 0) for s in ((100, 37), (100, 37), (37,)))
    check(dy, x, bias, approximate)
    x.requires_grad_(), bias.requires_grad_()
    functional.bias_gelu(x, bias, approximate=approximate).backward(dy)
    dx, dbias = ops.gate_backward_bias(dy, x.detach(), bias.detach(), GATES[approximate])
    assert bits.same(x.grad, dx) and bits.same(bias.grad, dbias)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_each_element_counts_once_in_its_own_column(dtype, device):
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


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_small_terms_are_not_lost_in_a_large_sum(dtype, device, many_rows):
    """1 + 2^-24 + 2^-24 + ... is 1 in float32 if added in order. g'(40) = 1."""
    rows = 20_000
    small = 2.0**-24 if dtype != torch.float64 else 2.0**-53
    dy = torch.full((rows, 3), small, dtype=dtype, device=device)
    dy[0] = 1
    x = torch.full_like(dy, 40)
    _, dbias = ops.gate_backward_bias(dy, x, torch.zeros_like(dy[0]), "normal")
    exact = 1 + (rows - 1) * small
    rounding = torch.finfo(dtype).eps / 2 if dtype.itemsize == 2 else 0
    torch.testing.assert_close(
        dbias.double(),
        torch.full_like(dbias, exact, dtype=torch.float64),
        rtol=0,
        atol=BLOCK * small + rounding,
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_terms_are_not_rounded_to_16_bits(dtype, device):
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
    # What g' may be off by in 16 bits, and the sum in float32.
    atol = 2 * rows * (half_ulp / 16 + 2 * rows * 2**-24)
    torch.testing.assert_close(dbias.double(), expected, rtol=half_ulp, atol=atol)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_16_bits_are_summed_in_32(dtype, device):
    """A sum of ones sticks at 256 in bfloat16 and at 2048 in float16."""
    x = torch.full((4096, 3), 40.0, dtype=dtype, device=device)
    ones = torch.ones_like(x)
    _, dbias = ops.gate_backward_bias(ones, x, torch.zeros_like(x[0]), "normal")
    assert torch.equal(dbias, torch.full_like(dbias, 4096))
    ones[::2] = -1
    ones[0] = 3
    _, dbias = ops.gate_backward_bias(ones, x, torch.zeros_like(x[0]), "normal")
    assert torch.equal(dbias, torch.full_like(dbias, 4))


# Layouts: (dy, x), each with 35 columns or more.
LAYOUTS = {
    "contiguous": lambda r: (r(50, 35), r(50, 35)),
    "one dimension": lambda r: (r(35), r(35)),
    "one dimension, strided": lambda r: (r(70)[::2], r(105)[::3]),
    "three dimensions": lambda r: (r(5, 10, 35), r(5, 10, 35)),
    "dy is one number": lambda r: (r().expand(50, 35), r(50, 35)),
    "dy is one row": lambda r: (r(35).expand(50, 35), r(50, 35)),
    "dy is one column": lambda r: (r(50, 1).expand(50, 35), r(50, 35)),
    "dy is one matrix": lambda r: (r(10, 35).expand(5, 10, 35), r(5, 10, 35)),
    "dy's columns apart": lambda r: (r(50, 70)[:, ::2], r(50, 35)),
    "x's columns apart": lambda r: (r(50, 35), r(50, 70)[:, ::2]),
    "dy's rows apart": lambda r: (r(100, 35)[::2], r(50, 35)),
    "half of x": lambda r: (r(50, 35), r(50, 70).chunk(2, -1)[1]),
    "half of both": lambda r: (r(50, 70).chunk(2, -1)[0], r(50, 70).chunk(2, -1)[1]),
    "half of a wide x": lambda r: (r(20, 1100), r(20, 2200).chunk(2, -1)[1]),
    "wide transposed": lambda r: (r(20, 1100), r(1100, 20).t()),
    "x transposed": lambda r: (r(50, 35), r(35, 50).t()),
    "dy transposed": lambda r: (r(35, 50).t(), r(50, 35)),
    "both transposed": lambda r: (r(35, 50).t(), r(35, 50).t()),
    "x permuted": lambda r: (r(5, 7, 35), r(35, 5, 7).permute(1, 2, 0)),
    "leading dimensions swapped": lambda r: (r(5, 7, 35), r(7, 5, 35).transpose(0, 1)),
    "both swapped": lambda r: (r(7, 5, 35).transpose(0, 1), r(7, 5, 35).transpose(0, 1)),
    "channels_last": lambda r: (
        r(2, 3, 4, 35),
        r(2, 3, 4, 35).contiguous(memory_format=torch.channels_last),
    ),
    "channels_last, permuted": lambda r: (
        r(2, 3, 4, 35),
        r(2, 35, 3, 4).contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1),
    ),
    "misaligned": lambda r: (r(50 * 35 + 1)[1:].view(50, 35), r(50 * 35 + 3)[3:].view(50, 35)),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, dtype, device):
    seeds = iter(range(100))
    dy, x = LAYOUTS[layout](lambda *shape: random(shape, dtype, device, next(seeds)))
    bias = random((2 * x.size(-1),), dtype, device, 99)[::2]
    assert not bias.is_contiguous()
    dx, dbias = check(dy, x, bias)
    assert dx.stride() == torch.empty_like(x).stride()
    plain = ops.gate_backward_bias(dy.contiguous(), x.contiguous(), bias.contiguous(), "normal")
    assert bits.same(dx, plain[0]) and bits.same(dbias, plain[1])


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0,), (2, 0, 5), (0, 0)], ids=str)
def test_empty(shape, device):
    x, bias = torch.ones(shape, device=device), torch.ones(shape[-1], device=device)
    dx, dbias = ops.gate_backward_bias(x, x, bias, "normal")
    assert dx.shape == x.shape
    assert torch.equal(dbias, torch.zeros_like(bias))
    x.requires_grad_(), bias.requires_grad_()
    functional.bias_gelu(x, bias).sum().backward()
    assert torch.equal(bias.grad, torch.zeros_like(bias))


def test_nan_stays_in_its_column(device):
    x = torch.zeros(100, 40, device=device)
    x[77, 33] = torch.nan
    _, dbias = ops.gate_backward_bias(torch.ones_like(x), x, torch.zeros_like(x[0]), "normal")
    expected = torch.full_like(dbias, 50)
    expected[33] = torch.nan
    assert torch.equal(dbias.isnan(), expected.isnan())
    assert torch.equal(dbias.nan_to_num(), expected.nan_to_num())
