"""The operators allocate their results, copy nothing, and write to nothing else."""

import ctypes.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from math import prod

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from gelu_kernels import functional, reference
from tests.calls import PUBLIC_CALLS, Call, normal
from tests.cases import each
from tests.layouts import LAYOUTS

COPIES = {"aten::copy_", "aten::clone", "aten::contiguous", "aten::_to_copy", "aten::cat"}
SHAPE = (512, 256)
SIZE = 4 * 512 * 256


def is_small(shapes: list[list[int]]) -> bool:
    """Whether no tensor it takes is larger than a vector of parameters."""
    sizes = [prod(shape) for shape in shapes if shape and isinstance(shape[0], int)]
    return bool(sizes) and max(sizes) <= 1024


def profiled(call: Callable[[], object]) -> tuple[set[str], int]:
    """The operators that ran, and the bytes that they allocated."""
    with profile(
        activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True
    ) as result:
        keep = call()
    del keep
    events = result.events()
    large = {e.name for e in events if not is_small(e.input_shapes)}
    return large, sum(max(0, e.self_cpu_memory_usage) for e in events)


@each(call=PUBLIC_CALLS, layout=["contiguous", "second half", "transposed"])
def test_nothing_is_copied(call: Call, layout: str) -> None:
    """An expanded gradient is not materialised, and rows with gaps between are read in place."""

    def make(*shape: int) -> Tensor:
        return normal(*shape, dtype=torch.float32)

    inputs = call.inputs(SHAPE, lambda *s: LAYOUTS[layout](make, s).requires_grad_())
    mask = SIZE / 32 if call.is_random else 0
    (y,) = call(*inputs)
    names, allocated = profiled(lambda: call(*inputs))
    assert not names & COPIES
    assert SIZE <= allocated < 1.01 * SIZE + mask
    dy = torch.ones(()).expand_as(y)
    names, allocated = profiled(lambda: torch.autograd.grad(y, inputs, dy))
    assert not names & COPIES
    results = sum(t.nbytes for t in inputs)
    sums = 0.07 * SIZE * sum(name in ("bias", "loc", "scale") for name in call.tensors)
    assert results <= allocated < 1.01 * results + sums


def test_one_gradient_alone_is_allocated_alone() -> None:
    x, up = torch.randn(512, 512).chunk(2, -1)
    x.requires_grad_(), up.requires_grad_()
    y = functional.geglu(x, up)
    dy = torch.ones(()).expand_as(y)
    names, allocated = profiled(lambda: torch.autograd.grad(y, up, dy))
    assert not names & COPIES
    assert SIZE <= allocated < 1.01 * SIZE


def test_the_profiler_sees_copies() -> None:
    x = torch.randn(512, 256)
    names, allocated = profiled(lambda: functional.gelu(x.t().contiguous()))
    assert names & COPIES
    assert allocated >= 2 * x.nbytes


GUARDED = """
import ctypes
import torch
from tests.calls import CORE_CALLS, DTYPES, normal
from tests.layouts import LAYOUTS, arrangements

for dtype in DTYPES:
    for rows in (1, 3):
        for columns in (1, 7, 15, 31, 33, 63, 255, 257, 1000, 1025):
            for layout in ("contiguous", "second half", "transposed"):
                for call in CORE_CALLS:
                    call(*next(arrangements(call, LAYOUTS[layout], (rows, columns),
                                            lambda *s: normal(*s, dtype=dtype))))
print("in bounds", flush=True)

x = torch.zeros(33)
ctypes.memset(x.data_ptr(), 1, x.nbytes + 4)
del x
"""


def test_nothing_is_written_outside_the_results() -> None:
    """glibc's checking allocator aborts on a block that was overrun."""
    library = ctypes.util.find_library("c_malloc_debug")
    if not library:
        pytest.skip("needs glibc's libc_malloc_debug")
    guard = {"LD_PRELOAD": library, "MALLOC_CHECK_": "3", "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-c", GUARDED], env=os.environ | guard, capture_output=True, text=True
    )
    assert "in bounds" in result.stdout, result.stderr
    assert result.returncode == -signal.SIGABRT, "the overrun at the end was not caught"


@pytest.mark.skipif("GELU_KERNELS_LARGE" not in os.environ, reason="GELU_KERNELS_LARGE is not set")
def test_more_than_two_to_the_31_elements() -> None:
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
