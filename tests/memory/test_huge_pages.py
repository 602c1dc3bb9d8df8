"""Large results on the CPU ask for huge pages: Linux flags their mappings in smaps."""

from pathlib import Path

import pytest
import torch

from gelu_kernels import functional
from tests.new_process import python

SMAPS = Path("/proc/self/smaps")
LARGE = 2**24  # floats: 64 MiB


def flags_at(address: int) -> list[str]:
    """The flags of the mapping that has the address."""
    inside = False
    for line in SMAPS.read_text().splitlines():
        first, *rest = line.split()
        if first == "VmFlags:" and inside:
            return rest
        if not first.endswith(":"):
            begin, end = (int(part, 16) for part in first.split("-"))
            inside = begin <= address < end
    raise AssertionError("the address is in no mapping")


def asked(t: torch.Tensor) -> bool:
    return "hg" in flags_at(t.data_ptr() + t.nbytes // 2)


def check() -> None:
    x = torch.zeros(LARGE // 1024, 1024, requires_grad=True)
    bias = torch.zeros(1024, requires_grad=True)
    assert not asked(x)
    for y in functional.gelu(x), functional.bias_gelu(x, bias), functional.soi_map(x):
        dx, _ = torch.autograd.grad(y, (x, bias), torch.zeros_like(x), allow_unused=True)
        assert asked(y) and asked(dx)


@pytest.mark.skipif(
    not SMAPS.exists() or "VmFlags" not in SMAPS.read_text(), reason="needs Linux's smaps"
)
def test_large_results() -> None:
    """In a new process, whose memory nothing has advised before."""
    python("from tests.memory.test_huge_pages import check; check()")
