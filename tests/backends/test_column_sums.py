"""The second stage of column sums: the last block of a segment of columns adds the partial sums,
or a second kernel does, where there are many blocks or no counters are left.
"""

import pytest
import torch
from torch import Tensor

from gelu_kernels.operators.types import Extent
from tests import bits, ptx_on_cpu
from tests.calls import CORE_CALLS, Call, Shape, normal
from tests.cases import each
from tests.devices import kernels_for
from tests.ptx_on_cpu import cuda

(GATE,) = (call for call in CORE_CALLS if call.op.name == "gate_backward_bias")
BF16, FP32, FP64 = torch.bfloat16, torch.float32, torch.float64

# Segments have 64 columns in float64, 128 in elements and in float32, else 256. A block has 32
# rows, up to 2,048 rows; from 8,193 rows on it has 256.
SHAPES = [
    (1, 5, FP32), (33, 5, FP32), (33, 68, FP32), (70, 1031, BF16), (70, 1040, BF16),
    (70, 68, FP64), (70, 131, FP64), (33 * 32, 20, FP64), (2048, 132, BF16), (2048, 128, BF16),
    (16385, 3, FP32), (32768, 3, BF16), (32769, 3, BF16),
]  # fmt: skip


def inputs(call: Call, shape: Shape, dtype: torch.dtype) -> list[Tensor]:
    return call.inputs(shape, lambda *s: normal(*s, dtype=dtype))


@each(rows=SHAPES)
def test_the_bits_are_the_same_each_time(rows: tuple[int, int, torch.dtype]) -> None:
    """A launch leaves the counters as it found them."""
    *shape, dtype = rows
    tensors = inputs(GATE, tuple(shape), dtype)
    expected = GATE(*tensors)
    with kernels_for("cuda_ptx"):
        for _ in range(3):
            results = GATE(*tensors)
            assert not any(bits.differing(y, e) for y, e in zip(results, expected, strict=True))


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptx_on_cpu.Kernel, "launch", lambda *_: None)


def launches(call: Call, shape: Shape) -> int:
    tensors = call.inputs(shape, lambda *s: torch.empty(s, dtype=BF16))
    before = cuda.launches()
    with cuda.enabled():
        call(*tensors)
    return cuda.launches() - before


@pytest.mark.usefixtures("nothing_runs")
def test_there_is_one_launch() -> None:
    """But for more than 128 blocks of rows, whose partial sums take one processor too long."""
    for call in CORE_CALLS:
        sums = list(call.op.outputs.values()).count(Extent.COLUMNS)
        if sums == 0:
            continue
        assert launches(call, (8192, 256)) == 1, call
        assert launches(call, (128 * 256, 16)) == 1, call
        assert launches(call, (128 * 256 + 1, 16)) == 1 + sums, call


@pytest.mark.usefixtures("nothing_runs")
def test_without_counters_there_are_two_launches() -> None:
    """For each of 2^16 counters a segment is too many."""
    assert launches(GATE, (1, 2**16 * 256 + 8)) == 2
    assert launches(GATE, (1, 256)) == 1
