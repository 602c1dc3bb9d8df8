"""What the Triton kernels give to NVIDIA's driver, over a stub of it which executes nothing."""

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

from gelu_kernels.operators.types import EXTENTS, CoreOperator, Extent
from gelu_kernels.triton_kernels import launch
from gelu_kernels.triton_kernels.tuning import VECTOR_BYTES
from tests import ptx_on_cpu, stub_driver
from tests.calls import CORE_CALLS, DTYPES, GATES, Call, Shape
from tests.layouts import LAYOUTS, Layout
from tests.stub_driver import Launch, State

triton = pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

ops = torch.ops.gelu_kernels

Tensors = dict[str, Tensor]
ALONG_ROWS = [name for name, extent in EXTENTS.items() if extent is Extent.ROWS]

# The SOI map draws by an element's place in a whole tensor, and codes are in that order: their
# operands are no matrices.
CALLS = [call for call in CORE_CALLS if call.op.family not in ("soi", "coded")]
each_call = pytest.mark.parametrize("call", CALLS, ids=str)


@pytest.fixture(scope="module", autouse=True)
def driver() -> Iterator[State]:
    with stub_driver.enabled() as state:
        yield state


@pytest.fixture(autouse=True)
def forget(driver: State) -> None:
    driver.reset(execute=False)


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


def addresses(t: Tensor) -> Tensor:
    """Of all elements."""
    offsets = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(t.shape, t.stride(), strict=True):
        offsets = offsets[..., None] + torch.arange(size) * stride
    return (t.data_ptr() + offsets * t.itemsize).reshape(t.shape)


def reached(launch: Launch, name: str, itemsize: int) -> Tensor:
    """The addresses of a matrix or, without a row's stride, of a vector."""
    v = launch.values
    along_columns = name not in ALONG_ROWS
    row = v.get(f"{name}_row", int(not along_columns))
    column = v.get(f"{name}_column", int(along_columns))
    rows, columns = torch.arange(v["rows"])[:, None], torch.arange(v["columns"])
    return (v[name] + (rows * row + columns * column) * itemsize).flatten()


def check_launch(launch: Launch) -> None:
    """What holds for all kernels."""
    assert launch.block == (256, 1, 1)
    for name, divisor in launch.divisors.items():
        assert launch.values[name] % divisor == 0, name


def check_operands(launch: Launch, results: Tensors, inputs: Tensors, *others: str) -> None:
    """The kernel has these tensors in place, the results first, beside the parameters ``others``.

    A parameter with the name of a tensor has this tensor. Parameters of a kernel that several
    operators share have names of their own.
    """
    check_launch(launch)
    have = {name: a for name, a in launch.addresses.items() if name not in others}
    expected = {name: t.data_ptr() for name, t in (results | inputs).items()}
    assert sorted(have.values()) == sorted(expected.values())
    assert [*have.values()][: len(results)] == [*expected.values()][: len(results)]
    for name in have.keys() & expected.keys():
        assert have[name] == expected[name], name
    by_address = {t.data_ptr(): t for t in (results | inputs).values()}
    tensors = {name: by_address[a] for name, a in have.items()}
    check_elements(launch, tensors)
    check_alignment(launch, tensors)
    check_tiles(launch)


def check_elements(launch: Launch, tensors: Tensors) -> None:
    """The strides lead to the same element of all tensors; the elements are in any order."""
    shape = next(iter(tensors.values())).shape
    have = [reached(launch, name, t.itemsize) for name, t in tensors.items()]
    places = {name: addresses(t) for name, t in tensors.items()}
    expected = [
        (a[..., None] if name in ALONG_ROWS else a).expand(shape).flatten()
        for name, a in places.items()
    ]
    order, expected_order = have[0].argsort(), expected[0].argsort()
    for name, a, b in zip(tensors, have, expected, strict=True):
        assert torch.equal(a[order], b[expected_order]), name


def check_alignment(launch: Launch, tensors: Tensors) -> None:
    """All tensors are promised to be aligned where all of their rows are."""
    sizes = [launch.values.get(f"{name}_row", 0) * t.itemsize for name, t in tensors.items()]
    begins = [launch.addresses[name] for name in tensors]
    aligned = all(n % VECTOR_BYTES == 0 for n in (*sizes, *begins))
    promised = {launch.divisors.get(name) for name in tensors}
    assert promised == {VECTOR_BYTES if aligned else None}


def check_tiles(launch: Launch) -> None:
    """A tile of a program reaches every element."""
    v = launch.values
    tile = v["ROWS"] if "ROWS" in v else v["block_rows"], v["COLUMNS"]
    tiles = [-(-v[n] // size) for n, size in zip(("rows", "columns"), tile, strict=True)]
    if v.get("dweight"):  # whose sums are over whole rows
        tiles[1] = 1
    if v.get("COLUMNS_FIRST"):
        tiles.reverse()
    assert launch.grid == (*tiles, 1)


def check_rows(launch: Launch, tensors: Tensors) -> None:
    """The operands are rows of consecutive elements in the order of the mask, whole octets or one
    row; the kernel has copies of others. The bias is as long as a row, or starts anew in it."""
    check_launch(launch)
    v = launch.values
    operands = {name: t for name, t in tensors.items() if t.dim() > 1}
    last = next(iter(operands.values())).size(-1)
    rows, columns = torch.arange(v["rows"])[:, None], torch.arange(v["columns"])
    for name, t in operands.items():
        have = v[name] + (rows * v[f"{name}_row"] + columns) * t.itemsize
        assert have.numel() == t.numel()
        copied = v[name] != t.data_ptr()
        whole = t.stride(-1) == 1 and last % 8 == 0
        assert copied != (whole or t.is_contiguous()), name
        assert copied or torch.equal(have.flatten(), addresses(t).flatten()), name
    if "bias" in tensors:
        assert v["bias"] == tensors["bias"].data_ptr()
        assert last == (v["repeat"] if v["REPEATED"] else v["columns"])
    assert launch.addresses.keys() - {"mask", "seed"} == tensors.keys()
    check_alignment(launch, tensors)
    assert v["ROWS"] * v["COLUMNS"] == 256 * 8 * v["OCTETS"]
    check_tiles(launch)


# The sums that are gradients, and where their partial sums are.
PARTIAL = {"dbias": "partial", "dloc": "loc_partial", "dscale": "scale_partial"}


def check_sums(launch: Launch, add: Launch, sums: Tensor, partial: str = "partial") -> None:
    check_launch(add)
    blocks = -(-launch.values["rows"] // launch.values["block_rows"])
    columns = sums.numel()
    names = ("partial", "dbias", "blocks", "columns")
    expected = (launch.values[partial], sums.data_ptr(), blocks, columns)
    assert tuple(add.values[name] for name in names) == expected
    assert add.grid == (-(-columns // 32), 1, 1)


def split(op: CoreOperator, tensors: Tensors) -> Tensors:
    """With the halves of tensors that hold x and up side by side."""
    found = {}
    for name, t in tensors.items():
        if name in op.halves:
            found[name], found[name.replace("x", "up")] = t.chunk(2, -1)
        else:
            found[name] = t
    return found


def check(driver: State, call: Call, tensors: list[Tensor], gate: str = GATES[0]) -> None:
    """The kernels have the operator's tensors."""
    results = dict(zip(call.op.outputs, call(*tensors, gate=gate), strict=True))
    inputs = dict(zip(call.tensors, tensors, strict=True))
    first, *others = driver.launches
    driver.launches.clear()
    in_octets = call.op.family == "dropout" and "dbias" not in results
    scratch = []
    if call.op.family == "dropout":
        scratch = [name for name in ("mask", "seed") if name in results | inputs]
    elif call.op.family == "cdf" and Extent.NUMBER in call.tensors.values():
        if "dloc" in results:  # rows of its own making, which test_same_bits.py compares
            for launch in (first, *others):
                check_launch(launch)
            return
        scratch = ["loc", "scale"]
    for name in scratch:
        tensor = (results if name in results else inputs).pop(name)
        assert first.addresses[name] == tensor.data_ptr()
    for name, sums in PARTIAL.items():
        if name in results:
            check_sums(first, others.pop(0), results.pop(name), sums)
            scratch.append(sums)
    assert not others
    results, inputs = split(call.op, results), split(call.op, inputs)
    if in_octets:
        check_rows(first, results | inputs)
    else:
        check_operands(first, results, inputs, *scratch)


@pytest.mark.slow
@each_call
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(call, dtype, driver):
    check(driver, call, call.inputs((24, 40), partial(torch.empty, dtype=dtype)))


@pytest.mark.slow
@each_call
def test_gates(call, driver):
    for gate in call.gates:
        check(driver, call, call.inputs((24, 40), torch.empty), gate)


@pytest.mark.slow
@each_call
@pytest.mark.parametrize("shape", [(1, 1), (300, 33), (3, 5000), (512, 600)], ids=str)
def test_shapes(call, shape, driver):
    check(driver, call, call.inputs(shape, partial(torch.empty, dtype=torch.float64)))


def arrangements(call: Call, layout: Layout, shape: Shape) -> Iterator[list[Tensor]]:
    """All matrices in the layout, and each alone."""

    def make(*s: int) -> Tensor:
        return layout(torch.empty, s) if len(s) == len(shape) else torch.empty(s)

    arranged, plain = (call.inputs(shape, m) for m in (make, torch.empty))
    yield arranged
    for i in range(len(plain)):
        yield [*plain[:i], arranged[i], *plain[i + 1 :]]


# A negative view is copied before it comes to a kernel.
MATRICES = [(name, (24, 40)) for name in LAYOUTS if name != "negative"]


@pytest.mark.slow
@each_call
@pytest.mark.parametrize("layout, shape", [*MATRICES, ("first half", (4, 6, 40))], ids=str)
def test_layouts(call, layout, shape, driver):
    for tensors in arrangements(call, LAYOUTS[layout], shape):
        check(driver, call, tensors)


def test_copies_are_made_where_operands_are_no_matrices(driver):
    x = torch.empty(4, 6, 40).transpose(0, 1)
    bias = torch.empty(40)
    ops.gate_forward(x, bias, "normal")
    (call,) = driver.launches
    check_launch(call)
    assert (call.values["rows"], call.values["columns"]) == (24, 40)
    assert call.values["x"] != x.data_ptr() and call.values["bias"] == bias.data_ptr()


def test_grids(driver):
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


@pytest.mark.parametrize("call", CORE_CALLS, ids=str)
@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (2, 0, 3)], ids=str)
def test_empty(call, shape, driver):
    call(*call.inputs(shape, torch.empty))
    assert driver.launches == []


@pytest.mark.parametrize("call", CORE_CALLS, ids=str)
def test_the_current_stream(call, driver):
    for driver.stream in (0, 7, 2**40 + 8):
        call(*call.inputs((24, 40), torch.empty))
        assert {launch.stream for launch in driver.launches} == {driver.stream}
        driver.launches.clear()


@pytest.mark.parametrize("call", CORE_CALLS, ids=str)
def test_only_a_second_stage_starts_early(call: Call, driver: State) -> None:
    call(*call.inputs((24, 40), torch.empty))
    early = [launch.kernel for launch in driver.launches if launch.is_dependent]
    stages = [x.kernel for x in driver.launches if x.kernel == "add_partial_sums"]
    assert early == stages
    assert bool(stages) == (not {"dbias", "dloc", "dscale"}.isdisjoint(call.op.outputs))


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_a_second_stage_starts_early_from_9_0_on(arch: int) -> None:
    program = f"""
import torch
from tests import stub_driver
with stub_driver.enabled({arch}) as state:
    x = torch.empty(64, 64)
    torch.ops.gelu_kernels.gate_backward_bias(x, x, x[0], "normal")
    print([launch.is_dependent for launch in state.launches])
"""
    assert stub_driver.run("-c", program).stdout.strip() == str([False, arch >= 90])


# The SOI map


def check_soi(driver: State, x: Tensor, bias: Tensor | None, *index: int) -> None:
    """What all its operators start: each kernel has the operands, and a program for each tile."""
    seed = torch.tensor(1)
    check_soi_cdf(driver, x, seed, *index)
    y, mask = ops.soi_forward(x, bias, seed, "normal", *index)
    dx = ops.soi_backward(y, mask)
    dx_and_sums, dbias = ops.soi_backward_bias(y, mask)
    forward, backward, sums, add = driver.launches
    tensors = {"y": y, "mask": mask, "x": x, "bias": bias, "loc": None, "scale": None, "seed": seed}
    check_soi_forward(forward, tensors, *index)

    check_launch(backward)
    v = backward.values
    assert [v[name] for name in ("dx", "dy", "mask")] == [t.data_ptr() for t in (dx, y, mask)]
    assert v["elements"] == x.numel()
    assert backward.grid == (-(-x.numel() // (8 * v["OCTETS"])), 1, 1)

    check_operands(sums, {"dx": dx_and_sums}, {"dy": y}, "mask", "partial")
    check_sums(sums, add, dbias)
    assert sums.values["mask"] == mask.data_ptr()
    assert sums.values["OCTETS"] == (x.size(-1) % 8 == 0)
    driver.launches.clear()


def check_soi_cdf(driver: State, x: Tensor, seed: Tensor, *index: int) -> None:
    number, vector = x.new_ones(()), x.new_ones(x.size(-1))  # no scale is negative
    for loc, scale in product((number, vector), repeat=2):
        y, mask = ops.soi_cdf_forward(x, loc, scale, seed, "normal", *index)
        tensors = {"y": y, "mask": mask, "x": x, "bias": None, "loc": loc, "scale": scale}
        started = driver.launches.pop()
        check_soi_forward(started, tensors | {"seed": seed}, *index)
        assert started.values["LOC_IS_NUMBER"] == (loc is number)
        assert started.values["SCALE_IS_NUMBER"] == (scale is number)


def check_soi_forward(
    call: Launch,
    tensors: dict[str, Tensor | None],
    offset: int = 0,
    row_length: int = 0,
    row_stride: int = 0,
) -> None:
    check_launch(call)
    v = call.values
    for name, t in tensors.items():
        assert v[name] == (t if t is None else t.data_ptr()), name
    rows, columns = v["rows"], v["columns"]
    assert rows * columns == tensors["x"].numel()
    assert (rows == 1 and v["row_step"] == 0) or (columns % 8 == 0 and v["row_step"] == columns)
    for name in ("bias", "loc", "scale"):
        if (t := tensors[name]) is not None and t.dim() == 1:
            assert t.numel() == (v["repeat"] if v["REPEATED"] else columns)
    assert v["ROWS"] * v["COLUMNS"] == 256 * 8 * v["OCTETS"]
    check_tiles(call)
    assert (v["offset"], v["row_length"], v["row_stride"]) == (offset, row_length, row_stride)
    assert v["GROUPED"] == (offset % 8 == 0 and row_length == 0)
    assert v["IN_ROWS"] == (row_length > 0)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_soi_dtypes(dtype, driver):
    x = torch.empty(24, 40, dtype=dtype)
    check_soi(driver, x, None)
    check_soi(driver, x, torch.empty(40, dtype=dtype))


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape", [(1, 1), (300, 33), (3, 5000), (1, 5001), (512, 1600), (5, 204_801)], ids=str
)
def test_soi_shapes(shape, driver):
    x = torch.empty(shape)
    check_soi(driver, x, None)
    check_soi(driver, x, torch.empty(shape[-1]))


@pytest.mark.parametrize("index", [(4,), (5,), (2**40 + 8,), (0, 20, 100), (7, 3, 0)], ids=str)
def test_soi_global_indices(index, driver):
    check_soi(driver, torch.empty(24, 40), None, *index)
    check_soi(driver, torch.empty(24, 40), torch.empty(40), *index)


def test_soi_alignment(driver):
    memory = torch.empty(24 * 40 + 1)
    for x, expected in ((memory[:-1].view(24, 40), 16), (memory[1:].view(24, 40), None)):
        ops.soi_forward(x, None, torch.tensor(1), "normal")
        assert driver.launches.pop().divisors.get("x") == expected


# Their memory is never touched.


def test_more_than_two_to_the_31_elements(driver):
    x = torch.empty(2**31 + 64, dtype=torch.bfloat16)
    y = ops.gate_forward(x, None, "normal")
    (call,) = driver.launches
    check_launch(call)
    v = call.values
    assert (v["out"], v["x"]) == (y.data_ptr(), x.data_ptr())
    assert (v["rows"], v["columns"], call.grid) == (1, 2**31 + 64, (2**18 + 1, 1, 1))


def test_more_than_two_to_the_31_columns(driver):
    """By one byte of memory, strides of 0."""
    dy = torch.empty((), dtype=torch.bfloat16).expand(1, 2**31 + 64)
    x = torch.empty(1, 2**31 + 64, dtype=torch.bfloat16)
    ops.gate_backward(dy, x, None, "normal")
    (call,) = driver.launches
    check_launch(call)
    assert (call.values["columns"], call.values["factor_column"]) == (2**31 + 64, 0)


@pytest.mark.parametrize(
    "dtype, shape",
    [
        (torch.bfloat16, (2**26, 33)),
        (torch.bfloat16, (3, 2**30)),
        (torch.float64, (65536 * 64 + 1,)),
    ],
    ids=str,
)
def test_large_matrices_with_a_bias(dtype, shape, driver):
    """The driver refuses a grid that is longer than 65,535 in its second dimension."""
    x = torch.empty(shape, dtype=dtype)
    bias = torch.empty(shape[-1], dtype=dtype)
    dx, dbias = ops.gate_backward_bias(x, x, bias, "normal")
    call, add = driver.launches
    check_launch(call)
    check_sums(call, add, dbias)
    v = call.values
    assert (v["rows"], v["columns"]) == (x.numel() // shape[-1], shape[-1])
    assert tuple(v[name] for name in ("dx", "dy", "x", "bias")) == tuple(
        t.data_ptr() for t in (dx, x, x, bias)
    )


def forward(x: Tensor) -> None:
    ops.gate_forward(x, None, "normal")


def test_a_kernel_is_compiled_once(driver, no_kernels, compiled):
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


def test_the_current_device(driver):
    """Tensors of the CPU stand for tensors of device 0."""
    x = torch.empty(16)
    for driver.device in (0, 1, 0):
        before = driver.device
        driver.asked.clear()
        forward(x)
        assert driver.launches.pop().device == 0
        assert driver.device == before
        assert "device" in driver.asked and "stream of 0" in driver.asked


def test_a_kernel_is_compiled_on_the_device_of_its_tensors(driver, no_kernels):
    driver.device = 1
    forward(torch.empty(16))
    assert driver.device == 1
    assert driver.launches.pop().device == 0


def test_a_failed_launch_is_an_exception(driver):
    x = torch.empty(16)
    forward(x)
    driver.error = stub_driver.LAUNCH_FAILED
    with pytest.raises(RuntimeError, match="unspecified launch failure"):
        forward(x)
    forward(x)
    assert len(driver.launches) == 2


def test_a_fault_is_an_exception(driver):
    """Here the kernel reads what torch did not allocate."""
    driver.execute = True
    with pytest.raises(RuntimeError, match="memcheck: .* not in the memory that the launch was"):
        forward(torch.from_numpy(np.zeros(16, np.float32)))


def test_an_exception_in_the_stub_is_not_lost(driver, monkeypatch):
    def launch(*_: object) -> None:
        raise ZeroDivisionError("of a test")

    driver.execute = True
    monkeypatch.setattr(ptx_on_cpu.Kernel, "launch", launch)
    with pytest.raises(RuntimeError, match="ZeroDivisionError: of a test"):
        forward(torch.empty(16))


def test_a_kernel_stays_loaded(driver, no_kernels):
    for _ in range(2):
        forward(torch.empty(16))
        gc.collect()
    assert len(driver.launches) == 2


def test_soi_of_more_than_two_to_the_31_elements(driver):
    x = torch.empty(2**31 + 64, dtype=torch.bfloat16)
    y, mask = ops.soi_forward(x, None, torch.tensor(1), "normal")
    ops.soi_backward(y, mask)
    forward, backward = driver.launches
    assert forward.values["columns"] == backward.values["elements"] == 2**31 + 64
    assert forward.grid == backward.grid == (2**19 + 1, 1, 1)
