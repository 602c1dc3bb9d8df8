"""With TRITON_INTERPRET=1 Triton's interpreter runs the kernels, for a user without a GPU."""

import pytest

from tests import stub_driver

# Not bfloat16, to which the interpreter truncates. Seeded, as its maximum of 0 and -0, which a gate
# takes where x + bias is 0, may be either.
PROGRAM = """
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


@pytest.mark.slow
def test_interpreter():
    pytest.importorskip("triton")
    result = stub_driver.run("-c", PROGRAM, TRITON_INTERPRET="1")
    assert result.returncode == 0, result.stderr
