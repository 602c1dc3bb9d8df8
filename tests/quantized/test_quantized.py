"""Gates and GLUs in eight bits: the unquantised operators' results, in the numbers and scales of
the specifications."""

import math
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from gelu_kernels import functional
from gelu_kernels.functional import Quantized
from tests import bits
from tests.calls import Shape
from tests.cases import each
from tests.layouts import LAYOUTS
from tests.oracles.quantized_oracle import FORMATS, Expected, quantised, unswizzled

ops = torch.ops.gelu_kernels
GATES = ("normal", "laplace")
DTYPES = (torch.bfloat16, torch.float32)
SCALINGS = ("TensorWise", "RowWise", "BlockWise1x128", "BlockWise1x32")
SCALE = 0.0123
CONTIGUOUS = {"memory_format": torch.contiguous_format}


def check(data: Tensor, scales: Tensor, expected: Expected) -> None:
    if scales.dtype == torch.float8_e8m0fnu:
        assert torch.equal(scales.view(torch.uint8).int(), expected.scales.int())
    else:
        shape = expected.scales.shape
        torch.testing.assert_close(
            scales.double().view(shape), expected.scales, rtol=0, atol=0, equal_nan=True
        )
    codes = data.view(torch.uint8)
    numbers = data.double()
    assert (codes[expected.numbers.isnan()] == 0x7F).all()
    torch.testing.assert_close(numbers, expected.numbers, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(
        numbers.signbit() & ~numbers.isnan(), expected.numbers.signbit() & ~numbers.isnan()
    )


def check_both(
    pairs: tuple[Quantized, Quantized], y: Tensor, float8: torch.dtype, mode: str
) -> None:
    """The numbers along rows and along columns."""
    for pair, of in zip(pairs, (y, y.t()), strict=True):
        check(*pair, quantised(of, float8, "BlockWise1x32", mode))


def options(scaling: str) -> dict[str, object]:
    return {"scaling": scaling} | (
        {"scale": torch.tensor(SCALE)} if scaling == "TensorWise" else {}
    )


def spread(*shape: int) -> Tensor:
    """Rows and columns of many magnitudes."""
    return torch.randn(shape) * torch.exp2(torch.randint(-20, 8, (*shape[:-1], 1)).float())


def every_bfloat16() -> Iterator[Tensor]:
    """In blocks of 32 along rows and columns: shuffled, sorted by magnitude, and shuffled among
    neighbours."""
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.bfloat16)
    by_magnitude = every[every.abs().float().argsort(stable=True)]
    mixed = by_magnitude.view(-1, 1024)[:, torch.randperm(1024)].flatten()
    for order in (every[torch.randperm(2**16)], by_magnitude, mixed):
        yield order.view(-1, 256)
        yield order.view(256, -1).t()


def straight(numbers: Tensor, **choices: object) -> Quantized | tuple[Quantized, Quantized]:
    """Any numbers, quantised: a gradient times g' = 1."""
    return functional.quantized_gate_backward(numbers, torch.full_like(numbers, 100), **choices)


def any_numbers(dtype: torch.dtype) -> Iterator[Tensor]:
    """Every bfloat16, or random bits of float32: of all magnitudes, and of similar ones."""
    if dtype == torch.bfloat16:
        yield from every_bfloat16()
    else:
        integers = torch.randint(-(2**31), 2**31, (512, 1024), dtype=torch.int64).int()
        yield integers.view(torch.float32)
        yield ((integers & 0x07FFFFFF) | 0x38000000).view(torch.float32)


@each(dtype=DTYPES, float8=FORMATS, mode=["floor", "rceil"])
def test_any_numbers(dtype: torch.dtype, float8: torch.dtype, mode: str) -> None:
    for numbers in any_numbers(dtype):
        pairs = straight(numbers, dtype=float8, mode=mode, along="both")
        check_both(pairs, numbers, float8, mode)


SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, -math.nan, 2.0**-133, -(2.0**-126), 3e38]


@each(dtype=DTYPES, mode=["floor", "rceil"])
def test_special_blocks(dtype: torch.dtype, mode: str) -> None:
    """A block filled with a special value, and one with it among ordinary numbers."""
    rows = [torch.full((32,), special, dtype=dtype) for special in SPECIAL]
    rows += [torch.cat([row[:1], torch.randn(31).to(dtype)]) for row in rows]
    numbers = torch.stack([*rows, *rows[: 32 - len(rows)]])
    pairs = straight(numbers, mode=mode, along="both")
    check_both(pairs, numbers, torch.float8_e4m3fn, mode)


@each(
    float8=FORMATS,
    dtype=DTYPES,
    scaling=SCALINGS,
    shape=[(128,), (1, 128), (33, 128), (64, 640), (2, 32, 128), (3, 2048)],
)
def test_forward(float8: torch.dtype, dtype: torch.dtype, scaling: str, shape: Shape) -> None:
    x, up = spread(*shape).to(dtype), spread(*shape).to(dtype)
    bias = torch.randn(shape[-1]).to(dtype)
    results = [
        (functional.gate(x), functional.quantized_gate(x, dtype=float8, **options(scaling))),
        (
            functional.gate(x, bias, gate="laplace"),
            functional.quantized_gate(x, bias, gate="laplace", dtype=float8, **options(scaling)),
        ),
        (
            functional.swiglu(x, up),
            functional.quantized_swiglu(x, up, dtype=float8, **options(scaling)),
        ),
        (
            functional.geglu(torch.cat([x, up], -1), approximate="tanh"),
            functional.quantized_geglu(
                torch.cat([x, up], -1), approximate="tanh", dtype=float8, **options(scaling)
            ),
        ),
    ]
    for y, (data, scales) in results:
        assert data.shape == y.shape and data.is_contiguous() and data.dtype == float8
        check(data, scales, quantised(y, float8, scaling, "floor", SCALE))


@each(
    dtype=DTYPES,
    mode=["floor", "rceil"],
    shape=[(32, 32), (32, 160), (160, 32), (96, 4096), (384, 256)],
)
def test_columns_and_swizzled_scales(dtype: torch.dtype, mode: str, shape: Shape) -> None:
    x = spread(*shape).to(dtype)
    y = functional.silu(x)
    for swizzle in ("NO_SWIZZLE", "SWIZZLE_32_4_4"):
        chosen = {"gate": "logistic", "mode": mode, "swizzle": swizzle}
        row, column = functional.quantized_gate(x, along="both", **chosen)
        for pair, of in ((row, y), (column, y.t())):
            scales = pair.scale
            if swizzle != "NO_SWIZZLE":
                n, m = of.shape
                assert scales.shape == (32 * -(-n // 128), 16 * -(-m // 128))
                nonzero = scales.view(torch.uint8).count_nonzero()
                scales = ordinary(scales, n, m)
                assert nonzero == scales.view(torch.uint8).count_nonzero()
            check(pair.data, scales, quantised(of, torch.float8_e4m3fn, "BlockWise1x32", mode))
        alone = [functional.quantized_gate(x, along=along, **chosen) for along in ("row", "column")]
        for pair, of_both in zip(alone, (row, column), strict=True):
            assert all(same(a, b) for a, b in zip(pair, of_both, strict=True))


def ordinary(scales: Tensor, rows: int, columns: int) -> Tensor:
    """Swizzled scales in row-major order, without the padding."""
    return unswizzled(scales, rows, columns // 32).view(torch.float8_e8m0fnu)


def same(a: Tensor, b: Tensor) -> bool:
    """In dtype and bits."""
    return a.dtype == b.dtype and bits.same(a, b)


def backward(dtype: torch.dtype, rows: int, columns: int) -> tuple[Tensor, ...]:
    return tuple(spread(rows, columns).to(dtype) for _ in range(3))


@each(gate=GATES, dtype=DTYPES, shape=[(32, 32), (160, 288), (2080, 64)])
def test_backward(gate: str, dtype: torch.dtype, shape: Shape) -> None:
    """The unquantised operators' gradients, quantised."""
    dy, x, up = backward(dtype, *shape)
    bias = torch.randn(shape[1]).to(dtype)
    compare = partial(check_both, float8=torch.float8_e5m2, mode="rceil")
    chosen = {"gate": gate, "dtype": torch.float8_e5m2, "along": "both", "mode": "rceil"}
    compare(
        functional.quantized_gate_backward(dy, x, **chosen), ops.gate_backward(dy, x, None, gate)
    )
    dx, dbias = ops.gate_backward_bias(dy, x, bias, gate)
    pairs, found = functional.quantized_gate_backward(dy, x, bias, **chosen)
    compare(pairs, dx)
    assert same(found, dbias)
    for pairs, gradient in zip(
        functional.quantized_glu_backward(dy, x, up, **chosen),
        ops.glu_backward(dy, x, up, None, gate),
        strict=True,
    ):
        compare(pairs, gradient)
    halves = torch.cat([x, up], -1)
    dx = ops.glu_halves_backward(dy, halves, None, gate)
    compare(functional.quantized_glu_backward(dy, halves, **chosen), dx)
    swizzled = functional.quantized_glu_backward(dy, halves, **chosen, swizzle="SWIZZLE_32_4_4")
    compare([Quantized(q.data, ordinary(q.scale, *q.data.shape)) for q in swizzled], dx)


@each(scaling=SCALINGS, layout=LAYOUTS)
def test_layouts(scaling: str, layout: str) -> None:
    x, up = (LAYOUTS[layout](lambda *s: spread(*s).bfloat16(), (64, 256)) for _ in range(2))
    along = "both" if scaling == "BlockWise1x32" else "row"
    chosen = options(scaling) | {"along": along, "gate": "normal"}

    def results(x: Tensor, up: Tensor) -> list[Tensor]:
        of_gate = functional.quantized_gate(x, **chosen)
        return tree_leaves((of_gate, functional.quantized_glu(x, up, **chosen)))

    assert all(map(same, results(x, up), results(x.clone(**CONTIGUOUS), up.clone(**CONTIGUOUS))))


@each(scaling=SCALINGS)
def test_empty(scaling: str) -> None:
    for shape in ((0, 128), (128, 0)):
        along = "both" if scaling == "BlockWise1x32" else "row"
        x = torch.empty(shape)
        results = functional.quantized_gate(x, **options(scaling), along=along)
        data = tree_leaves(results)[0]
        assert data.shape == shape
        if scaling == "TensorWise":
            assert results.amax == 0
        if scaling == "RowWise":
            assert (results.scale == 2.0**-126).all()
    _, dbias = functional.quantized_gate_backward(*[torch.empty(0, 32)] * 2, torch.ones(32))
    assert torch.equal(dbias, torch.zeros(32))


def every_result(dtype: torch.dtype) -> list[Tensor]:
    """The results of each operator, scaling and format, always from the same inputs."""
    torch.manual_seed(0)
    dy, x, up = backward(dtype, 320, 640)
    bias, float8 = torch.randn(640).to(dtype), tuple(FORMATS)
    results: list = [straight(dy, dtype=f, mode="rceil", along="both") for f in float8]
    for scaling in SCALINGS:
        chosen = options(scaling)
        results.append(functional.quantized_gate(x, bias, **chosen))
        results.append(functional.quantized_swiglu(x, up, dtype=float8[1], **chosen))
    results.append(functional.quantized_gate_backward(dy, x, bias, along="both"))
    results.append(functional.quantized_glu_backward(dy, x, up, gate="normal", along="both"))
    return tree_leaves(results)


@each(dtype=DTYPES)
def test_the_number_of_threads_changes_nothing(
    dtype: torch.dtype, thread_count: Callable[[int], None]
) -> None:
    results = []
    for threads in (1, 2, 3, 5):
        thread_count(threads)
        results.append(every_result(dtype))
    expected, *others = results
    assert all(all(map(same, other, expected)) for other in others)


@pytest.mark.skipif(
    not torch._C._dispatch_has_kernel_for_dispatch_key("aten::_scaled_mm_v2", "CPU"),
    reason="needs a torch whose scaled_mm is for CPUs too",
)
def test_scaled_mm_takes_them() -> None:
    """Without conversion, in the scalings that it supports on a CPU."""
    scaled_mm, kinds = torch.nn.functional.scaled_mm, torch.nn.functional.ScalingType
    x, weight = torch.randn(32, 64).bfloat16(), torch.randn(48, 64).to(torch.float8_e4m3fn)
    for kind, scale, ones in (
        (kinds.TensorWise, torch.tensor(0.01), torch.ones(())),
        (kinds.RowWise, None, torch.ones(1, 48)),
    ):
        data, scales = functional.quantized_gate(x, scaling=kind, scale=scale)
        scales = scales if scale is None else scale
        product = scaled_mm(data, weight.t(), scales, kind, ones, kind, output_dtype=torch.bfloat16)
        expected = (data.double() * scales) @ weight.double().t()
        torch.testing.assert_close(product.double(), expected, rtol=2.0**-8, atol=1e-5)
    of_128 = functional.quantized_gate(torch.randn(8, 256), scaling=kinds.BlockWise1x128).scale
    assert of_128.stride() == (1, 8)  # "outer-dim-major"


@each(dtype=DTYPES, scaling=["RowWise", "BlockWise1x128", "BlockWise1x32"])
def test_dequantize(dtype: torch.dtype, scaling: str) -> None:
    """Within half a unit of eight bits, 1/16 of a number or 2^-10 of the largest in the block."""
    x = torch.randn(96, 384).to(dtype)
    y = functional.gelu(x)
    options = {"scaling": scaling, "mode": "rceil"}
    results = functional.dequantize(*functional.quantized_gate(x, **options), dtype=dtype)
    largest = y.double().abs().amax(-1, keepdim=True)
    assert ((results - y).double().abs() <= y.double().abs() / 15.9 + largest * 2.0**-10).all()
    if scaling == "BlockWise1x32":
        options["swizzle"] = "SWIZZLE_32_4_4"
        pair = functional.quantized_gate(x, **options)
        assert torch.equal(
            functional.dequantize(*pair, dtype=dtype, swizzle=options["swizzle"]), results
        )
