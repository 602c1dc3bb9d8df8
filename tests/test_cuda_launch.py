"""How the CUDA kernels are started: on which device, loaded when, and what is said of a failure.

A fake of CUDA's runtime stands in for it (see tests/cuda_on_cpu).
"""

from collections.abc import Callable, Iterator
from itertools import count, product

import cuda_on_cpu
import pytest
import torch
from oracle import FORMATS, GATES
from torch import Tensor

from gelu_kernels import functional

ops = torch.ops.gelu_kernels


def soi_backward(op: Callable[..., object]) -> Callable[..., object]:
    return lambda x, bias, gate: op(x, torch.zeros((x.numel() + 7) // 8, dtype=torch.uint8))


Call = Callable[[Tensor, Tensor, str], object]
CALLS: dict[str, Call] = {
    "gate_forward": lambda x, bias, gate: ops.gate_forward(x, None, gate),
    "gate_forward, bias": lambda x, bias, gate: ops.gate_forward(x, bias, gate),
    "gate_backward": lambda x, bias, gate: ops.gate_backward(x, x, None, gate),
    "gate_backward, bias": lambda x, bias, gate: ops.gate_backward(x, x, bias, gate),
    "gate_backward_bias": lambda x, bias, gate: ops.gate_backward_bias(x, x, bias, gate),
    "gate_double_backward": lambda x, bias, gate: ops.gate_double_backward(x, x, x, None, gate),
    "gate_double_backward, bias": lambda x, bias, gate: ops.gate_double_backward(
        x, x, x, bias, gate
    ),
    "glu_forward": lambda x, bias, gate: ops.glu_forward(x, x, gate),
    "glu_backward": lambda x, bias, gate: ops.glu_backward(x, x, x, gate),
    "glu_halves_forward": lambda x, bias, gate: ops.glu_halves_forward(x, gate),
    "glu_halves_backward": lambda x, bias, gate: ops.glu_halves_backward(
        x.chunk(2, -1)[0].contiguous(), x, gate
    ),
    "soi_forward": lambda x, bias, gate: ops.soi_forward(x, None, torch.tensor(3), gate),
    "soi_backward": soi_backward(ops.soi_backward),
    "soi_backward_bias": soi_backward(ops.soi_backward_bias),
}


@pytest.fixture(params=CALLS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def op(name: str) -> str:
    return name.partition(",")[0]


unused = count(1)


@pytest.fixture
def device() -> Iterator[int]:
    """One on which nothing is loaded yet, for all tensors."""
    device = next(unused)
    with cuda_on_cpu.enabled(), cuda_on_cpu.on_device(device):
        yield device


def call(name: str) -> None:
    x = torch.randn(4, 1024)
    CALLS[name](x, x[0].clone(), "normal")


# The current device


@pytest.mark.parametrize("fails", [False, True])
def test_the_caller_keeps_the_current_device(name: str, device: int, fails: bool) -> None:
    with cuda_on_cpu.current_device(127):
        if fails:
            cuda_on_cpu.fail_next()
            with pytest.raises(torch.AcceleratorError):
                call(name)
        call(name)
        assert cuda_on_cpu.state().current_device == 127
    assert cuda_on_cpu.state().device_of_last == device


def test_a_device_that_is_current_is_not_set(name: str, device: int) -> None:
    before = cuda_on_cpu.state()
    with cuda_on_cpu.current_device(device):
        call(name)
    after = cuda_on_cpu.state()
    assert after.launches > before.launches
    assert after.devices_set == before.devices_set


def test_a_device_that_is_not_there() -> None:
    with cuda_on_cpu.enabled(), cuda_on_cpu.on_device(128), cuda_on_cpu.current_device(127):
        with pytest.raises(torch.AcceleratorError, match="cudaErrorInvalidDevice: invalid device"):
            call("gate_forward")
        assert cuda_on_cpu.state().current_device == 127


# Loading

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "large": lambda x: x.repeat(513, 1),
    "ragged": lambda x: x[:, :1022].contiguous(),
    "narrow": lambda x: x[:, :6].contiguous(),
    "strided": lambda x: x.repeat(1, 2)[:, ::2],
    "misaligned": lambda x: torch.cat([x.new_zeros(1), x.flatten()])[1:].view_as(x),
}


def test_a_small_call_loads_what_others_need(name: str, device: int) -> None:
    """In a capture nothing could be loaded."""
    for gate, dtype in product(GATES, FORMATS):
        x = torch.randn(4, 1024).to(dtype)
        CALLS[name](x, x[0].clone(), gate)
        loaded = cuda_on_cpu.state().loaded
        with cuda_on_cpu.capture(), cuda_on_cpu.only_ends(1):
            for layout in LAYOUTS.values():
                t = layout(x)
                CALLS[name](t, t[0].clone(), gate)
        assert cuda_on_cpu.state().loaded == loaded


def test_a_capture_without_a_warm_up_is_refused(device: int) -> None:
    message = "gate_forward: .* cudaErrorStreamCaptureUnsupported: operation not permitted"
    with cuda_on_cpu.capture(), pytest.raises(torch.AcceleratorError, match=message):
        call("gate_forward")
    call("gate_forward")
    with cuda_on_cpu.capture():
        call("gate_forward")


# Failures


def test_a_failure_is_an_error_of_the_accelerator(name: str, op: str, device: int) -> None:
    call(name)
    for error, words in {
        9: "cudaErrorInvalidConfiguration: invalid configuration argument",
        900: "cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing",
    }.items():
        cuda_on_cpu.fail_next(error)
        with pytest.raises(torch.AcceleratorError) as caught:
            call(name)
        message = f"gelu_kernels::{op}: CUDA could not start the kernel: {words}"
        assert str(caught.value).splitlines()[0] == message
        assert caught.value.error_code == error
        assert cuda_on_cpu.state().last_error == 0  # that nobody else reports it
    call(name)


def test_a_failure_of_the_functions(device: int) -> None:
    x = torch.randn(3, requires_grad=True)
    y = functional.gelu(x)
    cuda_on_cpu.fail_next()
    with pytest.raises(torch.AcceleratorError, match="gate_forward: .*InvalidConfiguration"):
        functional.gelu(x)
    cuda_on_cpu.fail_next()
    with pytest.raises(torch.AcceleratorError, match="gate_backward: .*InvalidConfiguration") as e:
        y.sum().backward()
    assert e.value.error_code == 9


@pytest.mark.parametrize("error", [98, 209, 222])
def test_a_device_without_a_binary(name: str, op: str, device: int, error: int) -> None:
    """The message says what is there, what was built and what to do."""
    cuda_on_cpu.fail_next(error)
    with pytest.raises(torch.AcceleratorError, match=f"gelu_kernels::{op}: ") as caught:
        call(name)
    assert caught.value.error_code == error
    message = str(caught.value).splitlines()[0]
    assert f"cuda:{device} is a Processor of compute capability 7.5" in message
    assert f"nvcc {cuda_on_cpu.BUILT}" in message
    assert "TORCH_CUDA_ARCH_LIST=7.5" in message
    assert "GELU_KERNELS_BACKEND=triton" in message
    call(name)
