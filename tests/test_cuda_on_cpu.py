"""The CUDA kernels give the bits of the CPU's, in any layout and for any error that a GPU's special
function unit may make. They run on a CPU here (see tests/cuda_on_cpu), as all tests of a `device`.
"""

import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import bits
import cuda_on_cpu
import oracle
import pytest
import torch
from cuda_on_cpu import Error
from torch import Tensor

import gelu_kernels

ops = torch.ops.gelu_kernels

WIDE = [torch.float32, torch.float64]
HALF = [torch.float16, torch.bfloat16]
Results = dict[str, Tensor]

every_dtype = pytest.mark.parametrize("dtype", [*WIDE, *HALF], ids=str)


def results(gate: str, x: Tensor, dy: Tensor, ddx: Tensor, bias: Tensor | None = None) -> Results:
    """Of all core operators."""
    named = {
        "gate_forward": ops.gate_forward(x, bias, gate),
        "gate_backward": ops.gate_backward(dy, x, bias, gate),
        "gate_double_backward": ops.gate_double_backward(ddx, dy, x, bias, gate),
    }
    if bias is not None:
        dx, dbias = ops.gate_backward_bias(dy, x, bias, gate)
        named |= {"gate_backward_bias": dx, "dbias": dbias}
    return named


def assert_same(results: Results, expected: Results) -> None:
    """The same bits, but for those of NaN."""
    for name, e in expected.items():
        y = results[name]
        assert y.stride() == e.stride()
        differ = bits.differing(y, e)
        assert differ == 0, f"{name}: {differ} of {e.numel()} differ"


def check(gate: str, x: Tensor, dy: Tensor, ddx: Tensor, bias: Tensor | None = None) -> None:
    expected = results(gate, x, dy, ddx, bias)
    before = cuda_on_cpu.launches()
    with cuda_on_cpu.enabled():
        actual = results(gate, x, dy, ddx, bias)
    assert cuda_on_cpu.launches() >= before + len(expected)
    assert_same(actual, expected)


def random(shape: tuple[int, ...], dtype: torch.dtype, scale: float = 3) -> Tensor:
    return (torch.randn(shape, dtype=torch.float64) * scale).to(dtype)


def special_values(dtype: torch.dtype) -> Tensor:
    info = torch.finfo(dtype)
    smallest = info.smallest_normal * info.eps
    magnitudes = [0, smallest, 3 * smallest, info.smallest_normal, 1, 5, 11, 40, info.max, math.inf]
    x = torch.tensor(magnitudes, dtype=torch.float64)
    return torch.cat([x, -x, torch.tensor([math.nan, -math.nan])]).to(dtype)


def test_the_cpu_kernels_come_back() -> None:
    x = torch.randn(100)
    before = cuda_on_cpu.launches()
    with cuda_on_cpu.enabled():
        ops.gate_forward(x, None, "normal")
    ops.gate_forward(x, None, "normal")
    assert cuda_on_cpu.launches() == before + 1


# The same bits as the CPU's


@every_dtype
def test_special_values(gate: str, dtype: torch.dtype) -> None:
    values = special_values(dtype)
    x, dy, ddx = torch.meshgrid(values, values, values[::3], indexing="ij")
    check(gate, x, dy, ddx)
    for t in (x.contiguous(), x.contiguous()[:, :, :7]):
        shape = t.shape
        check(gate, t, dy[:, :, : shape[2]], ddx[:, :, : shape[2]], values[: shape[2]])


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_every_input_of_16_bits(gate: str, dtype: torch.dtype) -> None:
    x = oracle.every_16_bit_input(dtype)
    dy, ddx = (random(x.shape, dtype) for _ in range(2))
    check(gate, x, dy, ddx)
    x, dy, ddx = (t.view(128, 512) for t in (x, dy, ddx))
    check(gate, x, dy, ddx, random((512,), dtype))


LAYOUTS: dict[str, Callable[[Callable[..., Tensor]], tuple[Tensor, Tensor]]] = {
    "contiguous": lambda r: (r(300, 512), r(300, 512)),
    "large": lambda r: (r(3000, 400), r(3000, 400)),
    "long rows": lambda r: (r(3, 10_000), r(3, 10_000)),
    "ragged rows": lambda r: (r(300, 513), r(300, 513)),
    "narrow rows": lambda r: (r(5000, 7), r(5000, 7)),
    "misaligned": lambda r: (r(300 * 512 + 1)[1:].view(300, 512), r(300, 512)),
    "halves": lambda r: (r(300, 1024).chunk(2, -1)[1], r(300, 1024).chunk(2, -1)[0]),
    "columns apart": lambda r: (r(300, 1024)[:, ::2], r(300, 1536)[:, ::3]),
    "transposed": lambda r: (r(512, 300).t(), r(300, 512)),
    "both transposed": lambda r: (r(512, 300).t(), r(512, 300).t()),
    "permuted": lambda r: (r(5, 6, 7, 64).permute(2, 0, 3, 1), r(7, 5, 64, 6)),
    "dy is one number": lambda r: (r(300, 512), r().expand(300, 512)),
    "dy is one row": lambda r: (r(300, 512), r(512).expand(300, 512)),
    "dy is one column": lambda r: (r(300, 512), r(300, 1).expand(300, 512)),
    "one dimension": lambda r: (r(1000), r(1000)),
}


@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(gate: str, layout: str, dtype: torch.dtype) -> None:
    x, dy = LAYOUTS[layout](lambda *shape: random(shape, dtype))
    ddx = random(x.shape, dtype)
    check(gate, x, dy, ddx)
    check(gate, x, dy, ddx, random((2 * x.size(-1),), dtype)[::2])
    check(gate, x, dy, ddx, random((x.size(-1),), dtype))


# The special function unit

EXTREMES = list(product([Error.NONE, Error.UP, Error.DOWN], repeat=2))
UNITS = [(*errors, 0) for errors in EXTREMES] + [(Error.RANDOM, Error.RANDOM, s) for s in range(4)]


def inputs(dtype: torch.dtype) -> Iterator[tuple[Tensor | None, ...]]:
    """x, dy, ddx, bias: bfloat16 and float16 x of all bits, or 200,000 others."""
    shape = (128, 512) if dtype in HALF else (400, 500)
    x = oracle.every_16_bit_input(dtype).view(shape) if dtype in HALF else random(shape, dtype, 5)
    dy, ddx = (random(shape, dtype) for _ in range(2))
    yield x, dy, ddx, None
    yield x, dy, ddx, random(shape[1:], dtype)


@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
def test_errors_of_the_special_function_unit_change_nothing(gate: str, dtype: torch.dtype) -> None:
    """A quotient is correctly rounded for any estimate of the reciprocal; bfloat16 values are for
    any power as well."""
    for case in inputs(dtype):
        expected = results(gate, *case)
        for exp2, reciprocal, seed in UNITS:
            with (
                cuda_on_cpu.special_function_unit(exp2, reciprocal, seed),
                cuda_on_cpu.enabled(),
            ):
                assert_same(results(gate, *case), expected)


def test_larger_errors_would_be_seen() -> None:
    x = oracle.every_16_bit_input(torch.bfloat16)
    expected = ops.gate_forward(x, None, "normal")
    with cuda_on_cpu.special_function_unit(Error.UP, Error.UP, scale=2**12), cuda_on_cpu.enabled():
        y = ops.gate_forward(x, None, "normal")
    assert (y != expected)[x.isfinite()].any()


# Offsets beyond 2^31, in memory that is reserved and hardly touched


@pytest.mark.parametrize("columns", [512, 301], ids=["vectors", "elements"])
@pytest.mark.parametrize("biased", [False, True])
def test_rows_far_apart(columns: int, biased: bool) -> None:
    """The last is 6 GB from the first."""
    storage = torch.empty(3 * 2**30 + columns, dtype=torch.bfloat16)
    x, dy = (storage.as_strided((4, columns), (2**30, 1)) for _ in range(2))
    x.copy_(random(x.shape, x.dtype))
    check("normal", x, dy, x, random((columns,), x.dtype) if biased else None)


@pytest.mark.parametrize("biased", [False, True])
def test_columns_far_apart(biased: bool) -> None:
    storage = torch.empty(3 * 2**30 + 300, dtype=torch.bfloat16)
    x = storage.as_strided((300, 4), (1, 2**30))
    x.copy_(random(x.shape, x.dtype))
    check("normal", x, x, x, random((4,), x.dtype) if biased else None)


OPERATORS: dict[str, Callable[[Tensor, Tensor | None], Tensor]] = {
    "gate_forward": lambda x, bias: ops.gate_forward(x, bias, "normal"),
    "gate_backward": lambda x, bias: ops.gate_backward(x, x, bias, "normal"),
    "gate_double_backward": lambda x, bias: ops.gate_double_backward(x, x, x, bias, "normal"),
    "gate_backward_bias": lambda x, bias: ops.gate_backward_bias(x, x, bias, "normal")[0],
    "glu_forward": lambda x, bias: ops.glu_forward(x, x, "normal"),
    "glu_backward": lambda x, bias: ops.glu_backward(x, x, x, "normal")[1],
}


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("columns", [1024, 1023, None], ids=["vectors", "elements", "no bias"])
@pytest.mark.parametrize("offset", [0, 1], ids=["aligned", "misaligned"])
def test_more_than_two_to_the_31_elements(op: str, columns: int | None, offset: int) -> None:
    """Only the first and the last blocks of a launch run."""
    if op == "gate_backward_bias" and columns is None:
        pytest.skip("takes a bias")
    size = 2**31 + 900 if columns is None else (2**31 // columns + 2) * columns
    x, bias = torch.empty(offset + size, dtype=torch.bfloat16)[offset:], None
    ends = [slice(1000), slice(-1000, None)]
    if columns is not None:
        x, bias = x.view(-1, columns), random((columns,), x.dtype)
        ends = [slice(2), slice(-2, None)]
    for end in ends:
        x[end] = random(x[end].shape, x.dtype)
    with cuda_on_cpu.enabled(), cuda_on_cpu.only_ends(16):
        y = OPERATORS[op](x, bias)
    for end in ends:
        assert torch.equal(y[end], OPERATORS[op](x[end].clone(), bias))


# Memory: AddressSanitizer and UndefinedBehaviorSanitizer watch every access of the kernels

OVERRUN = """
import sys
import cuda_on_cpu
import torch

size, offset = int(sys.argv[1]), int(sys.argv[2])
storage = torch.randn(size + offset)
x = storage[offset:]
storage.untyped_storage().resize_(storage.nbytes - 4)
with cuda_on_cpu.enabled():
    torch.ops.gelu_kernels.gate_forward(x, None, "normal")
"""


def run_sanitized(*arguments: str) -> subprocess.CompletedProcess:
    libraries = ["libasan.so", "libubsan.so", "libstdc++.so.6"]
    paths = [
        subprocess.check_output(["g++", f"-print-file-name={name}"], text=True).strip()
        for name in libraries
    ]
    tests = Path(__file__).parent
    environment = os.environ | {
        "LD_PRELOAD": " ".join(paths),
        "ASAN_OPTIONS": "detect_leaks=0",
        "GELU_KERNELS_SANITIZE": "1",
        "PYTHONPATH": f"{Path(gelu_kernels.__file__).parent.parent}:{tests}",
    }
    return subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=tests, capture_output=True, text=True
    )


@pytest.fixture(scope="session")
def sanitized_build() -> None:
    result = run_sanitized("-c", "import cuda_on_cpu; cuda_on_cpu.library()")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("size, offset", [(512, 0), (33, 0), (33, 1)])
def test_an_overrun_is_caught(sanitized_build: None, size: int, offset: int) -> None:
    """In whole vectors, in the last of a row, and among single elements."""
    result = run_sanitized("-c", OVERRUN, str(size), str(offset))
    assert result.returncode != 0
    assert "heap-buffer-overflow" in result.stderr
    assert "gelu_kernels::cuda::map_" in result.stderr


@pytest.mark.slow
def test_no_access_is_out_of_bounds(sanitized_build: None) -> None:
    tests, dtypes = "sizes or scalars or misaligned or layouts", "float32 or bfloat16"
    choice = f"cuda_on_cpu and ({tests}) and ({dtypes})"
    options = ["-q", "-p", "no:cacheprovider", "-k", choice]
    result = run_sanitized("-m", "pytest", *options, "test_layout.py", "test_bias_gradient.py")
    assert result.returncode == 0, result.stdout + result.stderr
