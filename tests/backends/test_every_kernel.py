"""Every kernel gives the bits of the CPU's, for each architecture that has code of its own, and so
does Triton's interpreter, which runs them for a user without a GPU."""

import re
from collections.abc import Iterator

import pytest
import torch

from tests import bits, stub_driver
from tests.backends.same_bits import EACH_FUNCTION, NUMBERS, Build, check, has_sums, moved
from tests.calls import Call
from tests.ptx_on_cpu import cuda

pytestmark = pytest.mark.slow

Case = tuple[Call, str, torch.dtype]
# The kernels whose PTX for sm_80 differs: those that may start before the one ahead has ended, sums
# and masks, whose seed was drawn; and dropout's masks, which compare numbers of 16 bits in pairs.
OF_SM_80 = [case for case in NUMBERS if has_sums(case[0]) or "mask" in case[0].op.outputs]


@pytest.mark.parametrize(
    "backend, cases",
    [
        ("cuda_ptx sm_80", OF_SM_80),
        ("cuda_ptx sm_90", NUMBERS),
        ("cuda_ptx sm_100", NUMBERS),  # with arithmetic for pairs of floats
        ("cuda_ptx sm_120", EACH_FUNCTION),
        ("triton_ptx sm_80", EACH_FUNCTION),
        ("triton_ptx sm_100", EACH_FUNCTION),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_every_kernel(backend: str, cases: list[Case]) -> None:
    """In every layout on CUDA."""
    check(backend, inputs_of(cases, has_layouts=backend.startswith("cuda")))


def inputs_of(
    cases: list[Case], has_layouts: bool
) -> Iterator[tuple[Call, str, Build, torch.dtype]]:
    for call, gate, dtype in cases:
        tensors = list(bits.inputs(call, dtype))
        if has_layouts:
            tensors += [*bits.arranged_inputs(call, dtype), bits.large_tensors(call, dtype)]
        for some in tensors:
            yield call, gate, moved(some), dtype


def test_sm_80_has_the_ptx_of_sm_90() -> None:
    """But for the kernels that may start early, dropout's masks, and those that quantise."""
    ours, theirs = (cuda.kernels(name) for name in ("sm_80", "sm_90"))
    alike = {
        name: kernel.text
        for name, kernel in theirs.items()
        if "griddepcontrol" not in kernel.text and not re.search("quantize|draw_dropout", name)
    }
    assert len(alike) > 500
    assert not [name for name, text in alike.items() if plain(text) != plain(ours[name].text)]


def plain(ptx: str) -> str:
    """Without what names the process of nvcc, and lines of files that are numbered as they come."""
    return re.sub(r"(_cu_[0-9a-f]{8})_\d+|\.loc.*", r"\1", ptx)


# Not bfloat16, to which the interpreter truncates. Seeded, as its maximum of 0 and -0, which a gate
# takes where x + bias is 0, may be either.
INTERPRETED = """
import torch
from tests import bits
from tests.calls import CORE_CALLS, DTYPES, normal
from gelu_kernels.triton_kernels import launch
from tests.triton_operators import registered

torch.manual_seed(0)
for dtype in (dtype for dtype in DTYPES if dtype != torch.bfloat16):
    for call in CORE_CALLS:
        tensors = call.inputs((6, 40), lambda *s: (3 * normal(*s)).to(dtype))
        expected = call(*tensors)
        launch._starts.clear()
        with registered("CPU"):
            results = call(*tensors)
        assert launch._starts
        for result, e in zip(results, expected, strict=True):
            assert bits.differing(result, e) == 0, (call, dtype)
"""


def test_interpreter() -> None:
    pytest.importorskip("triton")
    result = stub_driver.run("-c", INTERPRETED, TRITON_INTERPRET="1")
    assert result.returncode == 0, result.stderr
