"""The Triton kernels give the bits of the CPU's, for every operator and in any layout."""

from importlib.util import find_spec

import oracle
import pytest
import torch
import triton_interpreter
from test_cuda_on_cpu import (
    HALF,
    LAYOUTS,
    assert_same,
    every_dtype,
    random,
    results,
    special_values,
)
from torch import Tensor

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU"),
    pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton"),
]


def check(gate: str, x: Tensor, dy: Tensor, ddx: Tensor, bias: Tensor | None = None) -> None:
    expected = results(gate, x, dy, ddx, bias)
    with triton_interpreter.enabled():
        actual = results(gate, x, dy, ddx, bias)
    assert_same(actual, expected)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_every_input_of_16_bits(gate: str, dtype: torch.dtype) -> None:
    x = oracle.every_16_bit_input(dtype)
    dy, ddx = (random(x.shape, dtype) for _ in range(2))
    check(gate, x, dy, ddx)
    check(gate, *(t.view(64, 1024) for t in (x, dy, ddx)), random((1024,), dtype))


@every_dtype
def test_special_values(gate: str, dtype: torch.dtype) -> None:
    values = special_values(dtype)
    x, dy, ddx = torch.meshgrid(values, values, values[::3], indexing="ij")
    check(gate, x, dy, ddx)
    check(gate, *(t.reshape(-1, 11)[:40] for t in (x, dy, ddx)), values[:11])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, dtype: torch.dtype) -> None:
    """The first rows: the interpreter takes a minute for thousands."""
    x, dy = (t[:20] for t in LAYOUTS[layout](lambda *shape: random(shape, dtype)))
    ddx = random(x.shape, dtype)
    check("normal", x, dy, ddx)
    check("normal_tanh", x, dy, ddx, random((2 * x.size(-1),), dtype)[::2])
    check("normal", x, dy, ddx, random((x.size(-1),), dtype))
