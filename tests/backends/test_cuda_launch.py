"""How the CUDA kernels are started: on which device, loaded when, and the message of a failure.

A stub of CUDA's runtime stands in for it (see tests/ptx_on_cpu/cuda_runtime). No kernel runs.
"""

from collections.abc import Iterator
from itertools import count, product

import pytest
import torch

from gelu_kernels import functional
from gelu_kernels.operators.types import Extent
from tests import ptx_on_cpu
from tests.calls import CORE_CALLS, DTYPES, Call, Shape
from tests.layouts import LAYOUTS, arrangements
from tests.ptx_on_cpu import cuda

ops = torch.ops.gelu_kernels

DEVICE = 1
unused = count(DEVICE + 1)


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptx_on_cpu.Kernel, "launch", lambda *_: None)


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


def start(call: Call, shape: Shape = (4, 1024)) -> None:
    call(*call.inputs(shape, torch.randn))


# The current device


def test_the_caller_keeps_the_current_device(device: int) -> None:
    with cuda.current_device(127):
        for call, fails in product(CORE_CALLS, [False, True]):
            if fails:
                cuda.fail_next()
                with pytest.raises(torch.AcceleratorError):
                    start(call)
            else:
                start(call)
                assert cuda.state().device_of_last == device, call
            assert cuda.state().current_device == 127, (call, fails)


def test_a_device_that_is_current_is_not_set(device: int) -> None:
    for call in CORE_CALLS:
        before = cuda.state()
        with cuda.current_device(device):
            start(call)
        after = cuda.state()
        assert after.launches > before.launches, call
        assert after.devices_set == before.devices_set, call


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
def test_a_small_call_loads_what_others_need() -> None:
    """In a capture nothing could be loaded."""
    for call, dtype in product(CORE_CALLS, DTYPES):

        def make(*shape: int, dtype: torch.dtype = dtype) -> torch.Tensor:
            return torch.empty(shape, dtype=dtype)

        small = call.inputs((4, 1024), make)
        others = [next(arrangements(call, LAYOUTS[name], shape, make)) for name, shape in OTHERS]
        for gate in call.gates:
            call(*small, gate=gate)
            loaded = cuda.state().loaded
            with cuda.capture():
                for tensors in others:
                    call(*tensors, gate=gate)
            assert cuda.state().loaded == loaded, (call, dtype, gate)


@pytest.mark.usefixtures("unused_device")
def test_a_capture_without_a_warm_up_is_refused() -> None:
    message = "gate_forward: .* cudaErrorStreamCaptureUnsupported: operation not permitted"
    with cuda.capture(), pytest.raises(torch.AcceleratorError, match=message):
        start(CORE_CALLS[0])
    start(CORE_CALLS[0])
    with cuda.capture():
        start(CORE_CALLS[0])


# Programmatic dependent launch

SUMS = next(call for call in CORE_CALLS if call.op.name == "gate_backward_bias")
TWO_STAGES = (128 * 256 + 1, 4)  # test_column_sums.py says why


@pytest.mark.parametrize("version", [80, 90, 100])
@pytest.mark.usefixtures("unused_device")
def test_the_second_stage_does_not_wait_to_be_launched(version: int) -> None:
    """Code for 9.0 or more waits in the kernel instead, as test_ptx_changes.py shows."""
    with cuda.compiled_for(version):
        before = cuda.state()
        start(SUMS, TWO_STAGES)
        after = cuda.state()
    assert after.launches == before.launches + 2
    assert after.dependent_launches - before.dependent_launches == (version >= 90)


def test_no_other_kernel_starts_early(device: int) -> None:
    """But for the sums that are numbers, and the SOI map after the kernel that draws its seed."""
    for call in CORE_CALLS:
        is_map = call.op.name in ("soi_forward", "soi_cdf_forward")
        has_numbers = Extent.NUMBER in call.op.outputs.values()
        before = cuda.state().dependent_launches
        start(call)
        starts_early = cuda.state().dependent_launches > before
        assert starts_early == (is_map or has_numbers), call


# Failures

WORDS = {
    9: "cudaErrorInvalidConfiguration: invalid configuration argument",
    900: "cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing",
}


def test_a_failure_is_an_error_of_the_accelerator(device: int) -> None:
    for call in CORE_CALLS:
        start(call)
        for error, words in WORDS.items():
            cuda.fail_next(error)
            with pytest.raises(torch.AcceleratorError) as caught:
                start(call)
            message = f"gelu_kernels::{call.op.name}: CUDA could not start the kernel: {words}"
            assert str(caught.value).splitlines()[0] == message
            assert caught.value.error_code == error
            assert cuda.state().last_error == 0  # so that nobody else reports it
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


def test_a_device_without_a_binary(device: int) -> None:
    """The message names the device, the build and the remedy."""
    named = [
        f"cuda:{device} is a Processor of compute capability 7.5",
        f"nvcc {cuda.BUILT}",
        "TORCH_CUDA_ARCH_LIST=7.5",
        "GELU_KERNELS_BACKEND=triton",
    ]
    for call, error in product(CORE_CALLS, (98, 209, 222)):
        cuda.fail_next(error)
        with pytest.raises(torch.AcceleratorError) as caught:
            start(call)
        assert caught.value.error_code == error, call
        message = str(caught.value).splitlines()[0]
        missing = [x for x in (f"gelu_kernels::{call.op.name}: ", *named) if x not in message]
        assert not missing, (call, error, missing)
        start(call)
