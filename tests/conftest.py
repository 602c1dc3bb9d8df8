"""Fixtures that all tests share."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import cuda_on_cpu
import oracle
import pytest
import torch
import triton_interpreter

# Inductor keeps vector code under a key without ATEN_CPU_CAPABILITY, and compiles it for another.
CAPABILITY = torch.backends.cpu.get_cpu_capability()
INDUCTOR = Path(__file__).parents[1] / "build" / f"inductor-{torch.__version__}-{CAPABILITY}"
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(INDUCTOR)

GPU_DEVICES = [pytest.param(name, marks=pytest.mark.gpu) for name in ("cuda", "triton")]
if torch.cuda.is_available():
    DEVICES = ["cpu", "cuda_on_cpu", *GPU_DEVICES]
else:
    DEVICES = ["cpu", "cuda_on_cpu", "triton_interpreter"]
    triton_interpreter.switch_on()


@contextmanager
def kernels_for(device: str) -> Iterator[str]:
    """The torch device of the tensors that these kernels take."""
    if device == "cuda_on_cpu":
        with cuda_on_cpu.enabled():
            yield "cpu"
    elif device.startswith("triton") and find_spec("triton") is None:
        pytest.skip("needs Triton")
    elif device == "triton_interpreter":
        with triton_interpreter.enabled():
            yield "cpu"
    elif device == "triton":
        with triton_interpreter.registered("CUDA"):
            yield "cuda"
    else:
        yield device


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    with kernels_for(request.param) as device:
        yield device


@pytest.fixture
def fast_mode(request: pytest.FixtureRequest) -> bool:
    """Of gradcheck: along random directions only in Triton's interpreter, which takes 0.1 ms for an
    operation. There the bits are those of the CPU, where whole Jacobians are checked."""
    return request.node.callspec.params["device"] == "triton_interpreter"


@pytest.fixture(params=oracle.GATES)
def gate(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
