"""How the CUDA kernels are started: on which device, loaded when, and the message of a failure.

A stub of CUDA's runtime stands in for it (see tests/ptx_on_cpu/cuda_runtime).
"""

from collections.abc import Iterator
from itertools import count, product

import pytest
import torch
from torch import Tensor

from gelu_kernels import functional
from tests.calls import CORE_CALLS, DTYPES, Call
from tests.layouts import LAYOUTS, arrangements
from tests.ptx_on_cpu import cuda, only_ends

ops = torch.ops.gelu_kernels


@pytest.fixture(params=CORE_CALLS, ids=str)
def call(request: pytest.FixtureRequest) -> Call:
    return request.param


DEVICE = 1
unused = count(DEVICE + 1)


@pytest.fixture
def device() -> Iterator[int]:
    """One for all tensors."""
    with cuda.enabled(), cuda.on_device(DEVICE):
        yield DEVICE


@pytest.fixture
def unused_device() -> Iterator[None]:
    """One on which nothing is loaded yet, for all tensors."""
    with cuda.enabled(), cuda.on_device(next(unused)):
        yield


def start(call: Call) -> None:
    call(*call.inputs((4, 1024), torch.randn))


# The current device


@pytest.mark.parametrize("fails", [False, True])
def test_the_caller_keeps_the_current_device(call: Call, device: int, fails: bool) -> None:
    with cuda.current_device(127):
        if fails:
            cuda.fail_next()
            with pytest.raises(torch.AcceleratorError):
                start(call)
        start(call)
        assert cuda.state().current_device == 127
    assert cuda.state().device_of_last == device


def test_a_device_that_is_current_is_not_set(call: Call, device: int) -> None:
    before = cuda.state()
    with cuda.current_device(device):
        start(call)
    after = cuda.state()
    assert after.launches > before.launches
    assert after.devices_set == before.devices_set


def test_a_device_that_is_not_there() -> None:
    with cuda.enabled(), cuda.on_device(128), cuda.current_device(127):
        with pytest.raises(torch.AcceleratorError, match="cudaErrorInvalidDevice: invalid device"):
            start(CORE_CALLS[0])
        assert cuda.state().current_device == 127


# Loading

OTHERS = [
    ("contiguous", (2052, 1024)),
    ("contiguous", (4, 1022)),
    ("contiguous", (4, 6)),
    ("every other column", (4, 1024)),
    ("misaligned by 1", (4, 1024)),
]


@pytest.mark.usefixtures("unused_device")
def test_a_small_call_loads_what_others_need(call: Call) -> None:
    """In a capture nothing could be loaded."""
    for gate, dtype in product(call.gates, DTYPES):

        def make(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
            return torch.empty(shape, dtype=dtype).fill_(1)

        call(*call.inputs((4, 1024), make), gate=gate)
        loaded = cuda.state().loaded
        with cuda.capture(), only_ends(1):
            for layout, shape in OTHERS:
                call(*next(arrangements(call, LAYOUTS[layout], shape, make)), gate=gate)
        assert cuda.state().loaded == loaded


@pytest.mark.usefixtures("unused_device")
def test_a_capture_without_a_warm_up_is_refused() -> None:
    message = "gate_forward: .* cudaErrorStreamCaptureUnsupported: operation not permitted"
    with cuda.capture(), pytest.raises(torch.AcceleratorError, match=message):
        start(CORE_CALLS[0])
    start(CORE_CALLS[0])
    with cuda.capture():
        start(CORE_CALLS[0])


# Programmatic dependent launch

SECOND_STAGE = next(call for call in CORE_CALLS if call.op.name == "gate_backward_bias")


@pytest.mark.parametrize("version", [80, 90, 100])
@pytest.mark.usefixtures("unused_device")
def test_the_second_stage_does_not_wait_to_be_launched(version: int) -> None:
    """Code for 9.0 or more waits in the kernel instead, as test_ptx_changes.py shows."""
    with cuda.compiled_for(version):
        before = cuda.state()
        start(SECOND_STAGE)
        after = cuda.state()
    assert after.launches == before.launches + 2
    assert after.dependent_launches - before.dependent_launches == (version >= 90)


def test_no_other_kernel_starts_early(call: Call, device: int) -> None:
    """But for the second stage of sums, and the SOI map after the kernel that draws its seed."""
    has_sums = not {"dbias", "dloc", "dscale"}.isdisjoint(call.op.outputs)
    is_map = call.op.name in ("soi_forward", "soi_cdf_forward")
    before = cuda.state().dependent_launches
    start(call)
    assert (cuda.state().dependent_launches > before) == (has_sums or is_map)


# Failures


def test_a_failure_is_an_error_of_the_accelerator(call: Call, device: int) -> None:
    start(call)
    for error, words in {
        9: "cudaErrorInvalidConfiguration: invalid configuration argument",
        900: "cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing",
    }.items():
        cuda.fail_next(error)
        with pytest.raises(torch.AcceleratorError) as caught:
            start(call)
        message = f"gelu_kernels::{call.op.name}: CUDA could not start the kernel: {words}"
        assert str(caught.value).splitlines()[0] == message
        assert caught.value.error_code == error
        assert cuda.state().last_error == 0  # that nobody else reports it
    start(call)


def test_a_failure_of_the_functions(device: int) -> None:
    x = torch.randn(3, requires_grad=True)
    y = functional.gelu(x)
    cuda.fail_next()
    with pytest.raises(torch.AcceleratorError, match="gate_forward: .*InvalidConfiguration"):
        functional.gelu(x)
    cuda.fail_next()
    with pytest.raises(torch.AcceleratorError, match="gate_backward: .*InvalidConfiguration") as e:
        y.sum().backward()
    assert e.value.error_code == 9


@pytest.mark.parametrize("error", [98, 209, 222])
def test_a_device_without_a_binary(call: Call, device: int, error: int) -> None:
    """The message names the device, the build and the remedy."""
    cuda.fail_next(error)
    with pytest.raises(torch.AcceleratorError, match=f"gelu_kernels::{call.op.name}: ") as caught:
        start(call)
    assert caught.value.error_code == error
    message = str(caught.value).splitlines()[0]
    assert f"cuda:{device} is a Processor of compute capability 7.5" in message
    assert f"nvcc {cuda.BUILT}" in message
    assert "TORCH_CUDA_ARCH_LIST=7.5" in message
    assert "GELU_KERNELS_BACKEND=triton" in message
    start(call)
