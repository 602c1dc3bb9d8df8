"""The places where kernels run, as the tests name them.

Contracts run on DEVICES: the CPU and, where there is one, a GPU. The kernels of BACKENDS must give
the bits of the CPU's (test_same_bits.py); without a GPU, their PTX runs on memory of the CPU.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import pytest
import torch

from tests import stub_driver, triton_operators
from tests.ptx_on_cpu import cuda

GPU_DEVICES = [pytest.param(name, marks=pytest.mark.gpu) for name in ("cuda", "triton")]
HAS_GPU = torch.cuda.is_available()
DEVICES = ["cpu", *(GPU_DEVICES if HAS_GPU else [])]

# For sm_90, or for the architecture named after a space, as in "cuda_ptx sm_100".
PTX = ["cuda_ptx", "triton_ptx"]
BACKENDS = ["cuda_ptx", *GPU_DEVICES] if HAS_GPU else PTX


@contextmanager
def kernels_for(device: str) -> Iterator[str]:
    """The torch device of the tensors that these kernels take."""
    name, _, architecture = device.partition(" ")
    architecture = architecture or "sm_90"
    if name == "cuda_ptx":
        with cuda.enabled(architecture):
            yield "cpu"
    elif name.startswith("triton") and find_spec("triton") is None:
        pytest.skip("needs Triton")
    elif name in ("triton_ptx", "triton_portable"):
        arch, portable = int(architecture.removeprefix("sm_")), name == "triton_portable"
        with stub_driver.enabled(arch, execute=True, portable=portable):
            yield "cpu"
    elif name == "triton":
        with triton_operators.registered("CUDA"):
            yield "cuda"
    else:
        yield device
