"""Every kernel, for every architecture that there is one for, gives the bits of the CPU's."""

import pytest
import torch

from tests import bits
from tests.backends.same_bits import NUMBERS, check
from tests.calls import Call

BACKENDS = [f"cuda_ptx sm_{n}" for n in (80, 90, 100, 120)]
BACKENDS += [f"triton_ptx sm_{n}" for n in (80, 100)]


@pytest.mark.slow
@pytest.mark.parametrize("call, gate, dtype", NUMBERS, ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_kernel(backend: str, call: Call, gate: str, dtype: torch.dtype) -> None:
    """In every layout on CUDA. sm_100 has arithmetic for pairs of floats."""
    tensors = list(bits.inputs(call, dtype))
    if backend.startswith("cuda"):
        tensors += [*bits.arranged_inputs(call, dtype), bits.large_tensors(call, dtype)]
    for some in tensors:
        check(backend, call, lambda _, some=some: some, gate)
