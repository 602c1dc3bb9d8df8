"""The places where kernels run, as the tests name them.

Contracts run on DEVICES: the CPU and, where there is one, a GPU. The kernels of BACKENDS are held
by the bits of the CPU's (test_same_bits.py); without a GPU they run on memory of the CPU.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import pytest
import stub_driver
import torch
import triton_operators
from ptx_on_cpu import cuda

GPU_DEVICES = [pytest.param(name, marks=pytest.mark.gpu) for name in ("cuda", "triton")]
HAS_GPU = torch.cuda.is_available()
DEVICES = ["cpu", *(GPU_DEVICES if HAS_GPU else [])]
BACKENDS = ["cuda_ptx", *(GPU_DEVICES if HAS_GPU else ["triton_ptx"])]


@contextmanager
def kernels_for(device: str) -> Iterator[str]:
    """The torch device of the tensors that these kernels take."""
    if device == "cuda_ptx":
        with cuda.enabled():
            yield "cpu"
    elif device.startswith("triton") and find_spec("triton") is None:
        pytest.skip("needs Triton")
    elif device in ("triton_ptx", "triton_portable"):
        with stub_driver.enabled(execute=True, portable=device == "triton_portable"):
            yield "cpu"
    elif device == "triton":
        with triton_operators.registered("CUDA"):
            yield "cuda"
    else:
        yield device
