"""Sizes, strides, offsets and memory: what lies where makes no difference to any element.

Results are compared with the reference in float64, then, bit for bit, with those on contiguous
clones.
"""

import ctypes.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import bits
import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from gelu_kernels import functional, reference

ops = torch.ops.gelu_kernels

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
SIZES = [0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 255, 256, 257, 1000, 32769, 100003]


def exact(ddx: Tensor, dy: Tensor, x: Tensor, bias: Tensor | None) -> list[Tensor]:
    """gate_forward, gate_backward and gate_double_backward in float64."""
    total = x.double() if bias is None else x.double() + bias.double()
    total = total.detach().clone().requires_grad_()
    y = reference.gelu(total)
    (dx,) = torch.autograd.grad(y, total, dy.double(), create_graph=True)
    (second,) = torch.autograd.grad(dx, total, ddx.double())
    return [y.detach(), dx.detach(), second]


def check(x: Tensor, bias: Tensor | None = None, dy: Tensor | None = None) -> None:
    """All three operators on x, dy as they lie."""
    dy = torch.randn_like(x) if dy is None else dy
    ddx = torch.randn_like(x)
    inputs = [t for t in (ddx, dy, x, bias) if t is not None]
    before = [t.clone() for t in inputs]

    def run(ddx: Tensor, dy: Tensor, x: Tensor, bias: Tensor | None) -> list[Tensor]:
        return [
            ops.gate_forward(x, bias, "normal"),
            ops.gate_backward(dy, x, bias, "normal"),
            ops.gate_double_backward(ddx, dy, x, bias, "normal"),
        ]

    results = run(ddx, dy, x, bias)
    tolerance = {8: 1e-13, 4: 2e-6, 2: torch.finfo(x.dtype).eps}[x.itemsize]
    for result, expected in zip(results, exact(ddx, dy, x, bias), strict=True):
        assert result.dtype == x.dtype
        assert result.stride() == torch.empty_like(x).stride()
        torch.testing.assert_close(result.double(), expected, rtol=tolerance, atol=tolerance)
    packed = (None if t is None else t.contiguous() for t in (ddx, dy, x, bias))
    for result, plain in zip(results, run(*packed), strict=True):
        assert bits.same(result, plain)
    for t, b in zip(inputs, before, strict=True):
        assert bits.same(t, b)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_sizes(size, dtype, device):
    check(torch.randn(size, device=device).to(dtype))
    check(torch.randn(2, size, device=device).to(dtype), torch.randn(size, device=device).to(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scalars(dtype, device):
    x = torch.tensor(-0.3, device=device, dtype=dtype)
    check(x)
    assert functional.gelu(x).shape == ()
    check(torch.randn(10, device=device).to(dtype)[3])


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (2, 0, 3), (0, 0)], ids=str)
def test_empty(shape, device):
    x = torch.empty(shape, device=device)
    check(x)
    check(x, torch.randn(shape[-1], device=device))
    check(torch.empty(shape[::-1], device=device).permute(*reversed(range(len(shape)))))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("offset", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [1, 31, 257, 1000, 40_000])
def test_misaligned(size, offset, dtype, device):
    storage = torch.randn(3, size + 8, device=device).to(dtype)
    x, dy, bias = (t[offset : offset + size] for t in storage)
    check(x, dy=dy)
    check(x, bias=bias)


LAYOUTS: dict[str, Callable[..., Tensor]] = {
    "every other element": lambda r: r(2001)[::2],
    "every third column": lambda r: r(70, 100)[:, ::3],
    "every third row": lambda r: r(70, 100)[::3],
    "rows and columns": lambda r: r(70, 100)[::2, ::3],
    "sparse columns of wide rows": lambda r: r(5, 3000)[:, 1::2],
    "first half": lambda r: r(70, 600).chunk(2, -1)[0],
    "second half": lambda r: r(70, 600).chunk(2, -1)[1],
    "half with a ragged end": lambda r: r(70, 602).chunk(2, -1)[1],
    "narrow half": lambda r: r(300, 10).chunk(2, -1)[1],
    "inner block": lambda r: r(9, 10, 11)[1:-1, 2:-2, 3:-3],
    "diagonal": lambda r: r(100, 100).diagonal(),
    "windows that overlap": lambda r: r(100).unfold(0, 10, 3),
    "one number": lambda r: r().expand(300),
    "one row": lambda r: r(33).expand(40, 33),
    "one column": lambda r: r(40, 1).expand(40, 33),
    "one matrix": lambda r: r(5, 33).expand(7, 5, 33),
    "dimensions of one": lambda r: r(1, 40, 1, 33, 1),
    "transposed": lambda r: r(40, 33).t(),
    "half, transposed": lambda r: r(600, 70).chunk(2)[1].t(),
    "permuted": lambda r: r(5, 6, 7, 8).permute(2, 0, 3, 1),
    "permuted with gaps": lambda r: r(5, 6, 14, 8)[:, :, ::2].permute(2, 0, 3, 1),
    "five dimensions": lambda r: r(3, 4, 5, 6, 7)[::2, 1:, ::2, :, 1:],
    "channels_last": lambda r: r(2, 3, 8, 9).contiguous(memory_format=torch.channels_last),
    "channels_last_3d": lambda r: r(2, 3, 4, 5, 6).contiguous(memory_format=torch.channels_last_3d),
    "one channel": lambda r: r(2, 1, 8, 9).contiguous(memory_format=torch.channels_last),
    "half of the channels": lambda r: r(2, 8, 8, 9)[:, 3:],
    "one column of many": lambda r: r(5000, 1),
    "two columns": lambda r: r(5000, 2),
    "three columns": lambda r: r(5000, 3),
    "three columns apart": lambda r: r(5000, 4)[:, :3],
    "flipped": lambda r: r(50, 33).flip(0).t().flip(1),
    "conjugate's imaginary part": lambda r: torch.complex(r(50, 33), r(50, 33)).conj().imag,
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, dtype, device):
    def random(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, dtype=torch.float64).to(dtype)

    if layout.startswith("conjugate") and dtype not in (torch.float32, torch.float64):
        pytest.skip("no complex numbers in 16 bits")
    x, dy = (LAYOUTS[layout](random) for _ in range(2))
    check(x, dy=dy)
    check(x, dy=dy.contiguous())
    check(x.contiguous(), dy=dy)
    check(x, dy=random().expand_as(x))
    bias = random(2 * x.size(-1) + 1)[1::2]
    check(x, bias, dy=dy)
    check(x, bias, dy=random(x.size(-1)).expand_as(x))


def test_negative_views(device):
    x = torch.complex(torch.randn(50, 33), torch.randn(50, 33)).to(device).conj().imag
    assert x.is_neg()
    torch.testing.assert_close(functional.gelu(x), reference.gelu(x.clone()))


@pytest.mark.parametrize(
    "x, strides",
    [
        (lambda: torch.zeros(4, 5).t(), (1, 5)),
        (lambda: torch.zeros(2, 3, 4).permute(1, 2, 0), (4, 1, 12)),
        (lambda: torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last), (60, 1, 15, 3)),
        (lambda: torch.zeros(4, 10).chunk(2, -1)[1], (5, 1)),
        (lambda: torch.zeros(5).expand(4, 5), (5, 1)),
    ],
)
def test_dense_strides_are_kept(x, strides, device):
    x = x().to(device)
    bias = torch.zeros(x.size(-1), device=device)
    dy = torch.zeros(x.shape, device=device)
    for result in (
        functional.gelu(x),
        functional.bias_gelu(x, bias),
        ops.gate_backward(dy, x, None, "normal"),
        ops.gate_backward_bias(dy, x, bias, "normal")[0],
        ops.gate_double_backward(dy, dy, x, bias, "normal"),
    ):
        assert result.stride() == strides


# Memory

COPIES = {"aten::copy_", "aten::clone", "aten::contiguous", "aten::_to_copy"}


def profiled(call: Callable[[], object]) -> tuple[set[str], int]:
    """The operators that ran, and the bytes that they allocated."""
    # acc_events: without it, torch 2.11 warns of what a second cycle would lose.
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as result:
        keep = call()
    del keep
    events = result.events()
    return {e.name for e in events}, sum(max(0, e.self_cpu_memory_usage) for e in events)


@pytest.mark.parametrize("layout", ["contiguous", "half", "transposed"])
@pytest.mark.parametrize("biased", [False, True])
def test_nothing_is_copied(layout, biased):
    """An expanded gradient is not materialised, and rows that lie apart are read where they lie."""
    x = {
        "contiguous": lambda: torch.randn(512, 256),
        "half": lambda: torch.randn(512, 512).chunk(2, -1)[1],
        "transposed": lambda: torch.randn(256, 512).t(),
    }[layout]()
    x.requires_grad_()
    bias = [torch.randn(256, requires_grad=True)] if biased else []
    size = x.numel() * x.itemsize
    gelu = functional.bias_gelu if biased else functional.gelu

    y = gelu(x, *bias)
    names, allocated = profiled(lambda: gelu(x, *bias))
    assert not names & COPIES
    assert size <= allocated < 1.01 * size

    dy = torch.ones(()).expand_as(y)
    names, allocated = profiled(lambda: torch.autograd.grad(y, [x, *bias], dy))
    assert not names & COPIES
    assert size <= allocated < (1.1 if biased else 1.01) * size


def test_the_profiler_sees_copies():
    x = torch.randn(512, 256)
    names, allocated = profiled(lambda: functional.gelu(x.t().contiguous()))
    assert names & COPIES
    assert allocated >= 2 * x.nbytes


GUARDED = """
import ctypes
import torch
import gelu_kernels
ops = torch.ops.gelu_kernels
for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
    for rows in (1, 3):
        for columns in (1, 7, 15, 31, 33, 63, 255, 257, 1000, 1025):
            for x in (
                torch.randn(rows, columns).to(dtype),
                torch.randn(rows, 2 * columns).to(dtype).chunk(2, -1)[1],
                torch.randn(columns, rows).to(dtype).t(),
            ):
                for bias in (None, x[0].contiguous()):
                    ops.gate_forward(x, bias, "normal")
                    ops.gate_backward(x, x, bias, "normal")
                    ops.gate_double_backward(x, x, x, bias, "normal")
                ops.gate_backward_bias(x, x, bias, "normal")
                ops.glu_forward(x, x, "normal")
                ops.glu_backward(x, x, x, "normal")
                ops.glu_halves_backward(x, torch.cat([x, x], -1), "normal")
print("in bounds", flush=True)

x = torch.zeros(33)
ctypes.memset(x.data_ptr(), 1, x.nbytes + 4)
del x
"""


def test_nothing_is_written_outside_the_results():
    """glibc's checking allocator aborts on a block whose end was written over."""
    library = ctypes.util.find_library("c_malloc_debug")
    if not library:
        pytest.skip("needs glibc's libc_malloc_debug")
    result = subprocess.run(
        [sys.executable, "-c", GUARDED],
        env=os.environ | {"LD_PRELOAD": library, "MALLOC_CHECK_": "3"},
        capture_output=True,
        text=True,
    )
    assert "in bounds" in result.stdout, result.stderr
    assert result.returncode == -signal.SIGABRT, "the overrun at the end was not caught"


@pytest.mark.skipif("GELU_KERNELS_LARGE" not in os.environ, reason="GELU_KERNELS_LARGE is not set")
def test_more_than_two_to_the_31_elements():
    """Needs 14 GB. Elements on both sides of 2^31 differ from all others."""
    size = 2**31 + 64
    places = [0, 1, 2**30, 2**31 - 1, 2**31, 2**31 + 1, size - 33, size - 1]
    x = torch.full((size,), 40.0, dtype=torch.bfloat16)
    x[places] = torch.linspace(-2, 2, len(places), dtype=torch.bfloat16)
    x.requires_grad_()
    expected = x.detach()[places].double().requires_grad_()
    y = functional.gelu(x)
    reference.gelu(expected).sum().backward()
    close = {"rtol": 2**-8, "atol": 0}
    torch.testing.assert_close(
        y.detach()[places].double(), reference.gelu(expected.detach()), **close
    )
    assert (y.detach() == 40).count_nonzero() == size - len(places)
    y.sum().backward()
    del y
    torch.testing.assert_close(x.grad[places].double(), expected.grad, **close)
    assert (x.grad == 1).count_nonzero() == size - len(places)
