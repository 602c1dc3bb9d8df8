"""What the Triton kernels give to NVIDIA's driver, over a stub of it which executes nothing.

Whether the results are right is seen in tests that execute the kernels. Here is what these do not
see: copies, alignment, streams, devices, grids, and tensors that are too large to compute with.
"""

import gc
import shutil
from collections.abc import Iterator
from functools import partial
from itertools import product
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor

from gelu_kernels.triton_kernels import elementwise, launch, tuning
from gelu_kernels.triton_kernels.tuning import VECTOR_BYTES
from tests import ptx_on_cpu, stub_driver
from tests.backends.same_bits import has_sums
from tests.calls import CORE_CALLS, Call
from tests.layouts import LAYOUTS
from tests.stub_driver import Launch, State

triton = pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

ops = torch.ops.gelu_kernels
empty_bfloat16 = partial(torch.empty, dtype=torch.bfloat16)


@pytest.fixture
def driver() -> Iterator[State]:
    with stub_driver.enabled() as state:
        yield state


@pytest.fixture
def no_kernels(driver: State) -> Iterator[None]:
    """None is compiled yet."""
    with mock.patch.dict(launch._starts, clear=True):
        yield
    gc.collect()  # they are unloaded by the driver that loaded them


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that Triton was asked to compile."""
    names = []
    listener = lambda src, **_: names.append(src.name)  # noqa: E731
    monkeypatch.setattr(triton.knobs.compilation, "listener", listener)
    return names


def check_launch(launch: Launch) -> None:
    """What holds for all kernels."""
    threads = tuning.DRAW_THREADS if launch.kernel == "soi_forward" else tuning.THREADS
    assert launch.block == (threads, 1, 1)
    for name, divisor in launch.divisors.items():
        assert launch.values[name] % divisor == 0, name


# In a few layouts that test_same_layouts.py compiles too. Masks and codes are in the order of the
# elements: their kernels take consecutive elements, or rows of whole octets.
READ_IN_PLACE = ["contiguous", "second half", "every other column", "transposed"]
LAYOUTS_READ = {"soi": READ_IN_PLACE[:1], "coded": READ_IN_PLACE[:1], "dropout": READ_IN_PLACE[:2]}


def started(driver: State, call: Call, layout: str) -> tuple[list[Launch], list[Tensor]]:
    """With the matrices in the layout. And all tensors of the operator."""

    def make(*shape: int) -> Tensor:
        in_layout = LAYOUTS[layout if len(shape) == 2 else "contiguous"]
        return in_layout(empty_bfloat16, shape)

    tensors = call.inputs((9, 40), make)
    results = call(*tensors)
    launches, driver.launches = driver.launches, []
    return launches, [*tensors, *results]


def is_in(address: int, t: Tensor) -> bool:
    last = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
    return t.data_ptr() <= address <= t.data_ptr() + last * t.itemsize


def test_nothing_is_copied(driver: State) -> None:
    """The kernels have the operator's tensors, or the second half of one, and partial sums."""
    copies = []
    for call in CORE_CALLS:
        if str(call) == "cdf_gate_backward (numbers)":  # sums over rows of its own making
            continue
        for layout in LAYOUTS_READ.get(call.op.family, READ_IN_PLACE):
            launches, tensors = started(driver, call, layout)
            for x in launches:
                check_launch(x)
                copies += [
                    (str(call), layout, name)
                    for name, address in x.addresses.items()
                    if "partial" not in name and not any(is_in(address, t) for t in tensors)
                ]
    assert not copies


def test_whole_vectors(driver: State) -> None:
    """Are promised where all rows of all operands begin with one."""
    misaligned = [(call, "misaligned by 1") for call in CORE_CALLS[:1]]
    for call, layout in [*product(CORE_CALLS, ["contiguous"]), *misaligned]:
        (first, *_), tensors = started(driver, call, layout)
        matrices = {t.data_ptr() for t in tensors if t.dim() == 2}
        promised = {first.divisors.get(n) for n, a in first.addresses.items() if a in matrices}
        expected = {VECTOR_BYTES if layout == "contiguous" else None}
        assert promised == expected or str(call) == "cdf_gate_backward (numbers)", (call, layout)


def test_copies_are_made_where_operands_are_no_matrices(driver: State) -> None:
    x = torch.empty(4, 6, 40).transpose(0, 1)
    bias = torch.empty(40)
    ops.gate_forward(x, bias, "normal")
    (call,) = driver.launches
    check_launch(call)
    assert (call.values["rows"], call.values["columns"]) == (24, 40)
    assert call.values["x"] != x.data_ptr() and call.values["bias"] == bias.data_ptr()


def test_grids(driver: State) -> None:
    def grid(*shape: int, bias: bool = False) -> tuple[int, int, int]:
        x = torch.empty(shape)
        ops.gate_forward(x, torch.empty(shape[-1]) if bias else None, "normal")
        return driver.launches.pop().grid

    assert grid(16) == (1, 1, 1)
    assert grid(1024) == (1, 1, 1)
    assert grid(1025) == (2, 1, 1)
    assert grid(2**19) == (512, 1, 1)
    assert grid(2**19 + 1) == (129, 1, 1)  # four vectors for each thread
    assert grid(5, 1024, bias=True) == (5, 1, 1)
    assert grid(5000, 33, bias=True) == (313, 1, 1)  # tiles of 16 x 64
    assert grid(3, 10_240, bias=True) == (10, 3, 1)  # of 1 x 1024


def test_empty(driver: State) -> None:
    for call, shape in product(CORE_CALLS, [(0,), (0, 5), (5, 0), (2, 0, 3)]):
        call(*call.inputs(shape, torch.empty))
        assert driver.launches == [], (call, shape)


def test_the_current_stream(driver: State) -> None:
    for call, driver.stream in product(CORE_CALLS, (0, 7, 2**40 + 8)):
        call(*call.inputs((9, 40), empty_bfloat16))
        assert {launch.stream for launch in driver.launches} == {driver.stream}, call
        driver.launches.clear()


def test_only_a_second_stage_starts_early(driver: State) -> None:
    for call in CORE_CALLS:
        call(*call.inputs((9, 40), empty_bfloat16))
        early = [launch.kernel for launch in driver.launches if launch.is_dependent]
        kernels = [launch.kernel for launch in driver.launches]
        assert early == ["add_partial_sums"] * kernels.count("add_partial_sums"), call
        assert bool(early) == has_sums(call), call
        driver.launches.clear()


def test_a_second_stage_starts_early_from_9_0_on() -> None:
    x = torch.empty(64, 64)
    for arch in (80, 90, 100):
        with stub_driver.enabled(arch) as state:
            ops.gate_backward_bias(x, x, x[0], "normal")
            assert [launch.is_dependent for launch in state.launches] == [False, arch >= 90]


# Their memory is never touched.


def test_more_than_two_to_the_31_elements(driver: State) -> None:
    x = torch.empty(2**31 + 64, dtype=torch.bfloat16)
    y = ops.gate_forward(x, None, "normal")
    (call,) = driver.launches
    check_launch(call)
    v = call.values
    assert (v["out"], v["x"]) == (y.data_ptr(), x.data_ptr())
    assert (v["rows"], v["columns"], call.grid) == (1, 2**31 + 64, (2**18 + 1, 1, 1))


def test_more_than_two_to_the_31_columns(driver: State) -> None:
    """By one byte of memory, strides of 0."""
    dy = torch.empty((), dtype=torch.bfloat16).expand(1, 2**31 + 64)
    x = torch.empty(1, 2**31 + 64, dtype=torch.bfloat16)
    ops.gate_backward(dy, x, None, "normal")
    (call,) = driver.launches
    check_launch(call)
    assert (call.values["columns"], call.values["factor_column"]) == (2**31 + 64, 0)


def test_soi_of_more_than_two_to_the_31_elements(driver: State) -> None:
    x = torch.empty(2**31 + 64, dtype=torch.bfloat16)
    y, mask = ops.soi_forward(x, None, torch.tensor(1), "normal")
    ops.soi_backward(y, mask)
    forward, backward = driver.launches
    assert forward.values["columns"] == backward.values["elements"] == 2**31 + 64
    assert forward.grid == backward.grid == (2**19 + 1, 1, 1)


def test_large_matrices_with_a_bias(driver: State) -> None:
    """The driver refuses a grid that is longer than 65,535 in its second dimension."""
    for dtype, shape in [
        (torch.bfloat16, (2**26, 33)),
        (torch.bfloat16, (3, 2**30)),
        (torch.float64, (65536 * 64 + 1,)),
    ]:
        x = torch.empty(shape, dtype=dtype)
        bias = torch.empty(shape[-1], dtype=dtype)
        dx, dbias = ops.gate_backward_bias(x, x, bias, "normal")
        call, add = driver.launches
        check_launch(call)
        check_launch(add)
        assert add.values["partial"] == call.values["partial"]
        assert (add.values["dbias"], add.values["columns"]) == (dbias.data_ptr(), shape[-1])
        assert add.values["blocks"] == -(-call.values["rows"] // call.values["block_rows"])
        v = call.values
        assert (v["rows"], v["columns"]) == (x.numel() // shape[-1], shape[-1])
        tensors = {"dx": dx, "dy": x, "x": x, "bias": bias}
        assert {n: v[n] for n in tensors} == {n: t.data_ptr() for n, t in tensors.items()}
        driver.launches.clear()


def forward(x: Tensor) -> None:
    ops.gate_forward(x, None, "normal")


def test_a_kernel_is_compiled_once(driver: State, no_kernels: None, compiled: list[str]) -> None:
    memory = torch.empty(101)
    forward(memory[:100])
    assert compiled == ["map_rows"]
    forward(memory[:100])
    forward(memory[:50])
    forward(torch.empty(10, 20))
    assert compiled == ["map_rows"]
    forward(memory[1:])
    assert compiled == ["map_rows"] * 2
    forward(memory[1:])
    assert compiled == ["map_rows"] * 2
    assert [bool(call.divisors) for call in driver.launches] == [True] * 4 + [False] * 2


def test_the_current_device(driver: State) -> None:
    """Tensors of the CPU stand for tensors of device 0."""
    x = torch.empty(16)
    for driver.device in (0, 1, 0):
        before = driver.device
        driver.asked.clear()
        forward(x)
        assert driver.launches.pop().device == 0
        assert driver.device == before
        assert "device" in driver.asked and "stream of 0" in driver.asked


def test_the_stream_is_the_tensors_devices(driver: State) -> None:
    """The CPU's tensors stand for tensors of device 1."""
    with mock.patch.object(elementwise, "launch") as launched:
        forward(torch.empty(16))
    op, key, specialize, *arguments = launched.call_args.args
    launch._compiled(op, specialize(key), torch.device("cpu", 1))(*arguments)
    assert "stream of 1" in driver.asked and driver.launches.pop().device == 1


def test_a_kernel_is_compiled_on_the_device_of_its_tensors(driver: State, no_kernels: None) -> None:
    driver.device = 1
    forward(torch.empty(16))
    assert driver.device == 1
    assert driver.launches.pop().device == 0


def test_a_failed_launch_is_an_exception(driver: State) -> None:
    x = torch.empty(16)
    forward(x)
    driver.error = stub_driver.LAUNCH_FAILED
    with pytest.raises(RuntimeError, match="unspecified launch failure"):
        forward(x)
    forward(x)
    assert len(driver.launches) == 2


def test_a_fault_is_an_exception(driver: State) -> None:
    """Here the kernel reads what torch did not allocate."""
    driver.execute = True
    with pytest.raises(RuntimeError, match="memcheck: .* not in the memory that the launch was"):
        forward(torch.from_numpy(np.zeros(16, np.float32)))


def test_an_exception_in_the_stub_is_not_lost(
    driver: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch(*_: object) -> None:
        raise ZeroDivisionError("of a test")

    driver.execute = True
    monkeypatch.setattr(ptx_on_cpu.Kernel, "launch", launch)
    with pytest.raises(RuntimeError, match="ZeroDivisionError: of a test"):
        forward(torch.empty(16))


def test_a_kernel_stays_loaded(driver: State, no_kernels: None) -> None:
    for _ in range(2):
        forward(torch.empty(16))
        gc.collect()
    assert len(driver.launches) == 2
