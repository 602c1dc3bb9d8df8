"""What the operators give to NVIDIA's driver, for ``test_triton_launch``, in its own process."""

from collections.abc import Callable, Iterator

import pytest
import torch
import triton
from torch import Tensor

import stub_driver
from stub_driver import Launch, State

ops = torch.ops.gelu_kernels

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture(scope="module", autouse=True)
def driver() -> Iterator[State]:
    with stub_driver.enabled() as state:
        yield state


@pytest.fixture(autouse=True)
def forget(driver: State) -> None:
    driver.launches.clear()
    driver.asked.clear()


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


def reached(call: Launch, name: str, itemsize: int) -> Tensor:
    """The addresses of an operand, by rows and columns."""
    v = call.values
    row, column = v.get(f"{name}_row", 0), v.get(f"{name}_column", 1)
    rows, columns = torch.arange(v["rows"])[:, None], torch.arange(v["columns"])
    return v[name] + (rows * row + columns * column) * itemsize


def check_launch(call: Launch) -> None:
    """What holds for all kernels."""
    assert call.block == (256, 1, 1)
    for name, divisor in call.divisors.items():
        assert call.values[name] % divisor == 0, name


def check_elements(call: Launch, **operands: Tensor | None) -> None:
    """The kernel gets every operand of each element, and a tile of a program reaches the element.

    The operands are named as the kernel's parameters, the result first.
    """
    check_launch(call)
    given = {name: t for name, t in operands.items() if t is not None}
    assert all(call.values[name] is None for name in operands if name not in given)
    shape = next(iter(given.values())).shape
    expected = [addresses(t).expand(shape).flatten() for t in given.values()]
    have = [reached(call, name, t.itemsize) for name, t in given.items()]
    have = [t.expand(call.values["rows"], call.values["columns"]).flatten() for t in have]
    order, expected_order = have[0].argsort(), expected[0].argsort()
    for a, b in zip(have, expected, strict=True):
        assert torch.equal(a[order], b[expected_order])

    tile_rows = call.values["ROWS" if "ROWS" in call.values else "block_rows"]
    tiles = [-(-call.values["rows"] // tile_rows)]
    tiles.append(-(-call.values["columns"] // call.values["COLUMNS"]))
    if call.values.get("COLUMNS_FIRST"):
        tiles.reverse()
    assert call.grid == (*tiles, 1)


def check_sums(call: Launch, add: Launch, dbias: Tensor) -> None:
    check_launch(add)
    blocks = -(-call.values["rows"] // call.values["block_rows"])
    columns = dbias.numel()
    names = ("partial", "dbias", "blocks", "columns")
    expected = (call.values["partial"], dbias.data_ptr(), blocks, columns)
    assert tuple(add.values[name] for name in names) == expected
    assert add.grid == (-(-columns // 32), 1, 1)


def check(
    driver: State, x: Tensor, bias: Tensor, dy: Tensor, ddx: Tensor, gate: str = "normal"
) -> None:
    """All operators, with and without a bias."""
    for b in (None, bias):
        y = ops.gate_forward(x, b, gate)
        check_elements(driver.launches.pop(), out=y, x=x, bias=b, factor=None, other=None)
        dx = ops.gate_backward(dy, x, b, gate)
        check_elements(driver.launches.pop(), out=dx, x=x, bias=b, factor=dy, other=None)
        dx = ops.gate_double_backward(ddx, dy, x, b, gate)
        check_elements(driver.launches.pop(), out=dx, x=x, bias=b, factor=dy, other=ddx)
    dx, dbias = ops.gate_backward_bias(dy, x, bias, gate)
    call, add = driver.launches
    check_elements(call, dx=dx, x=x, bias=bias, dy=dy)
    check_sums(call, add, dbias)
    driver.launches.clear()


def operands(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """With a bias, dy and ddx that lie like x."""
    return x, torch.empty(x.size(-1), dtype=x.dtype), *(torch.empty_like(x) for _ in range(2))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(dtype, driver):
    check(driver, *operands(torch.empty(24, 40, dtype=dtype)))


def test_another_gate(driver):
    check(driver, *operands(torch.empty(24, 40)), "logistic_1702")


LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "one element": lambda: torch.empty(1, 1),
    "ragged": lambda: torch.empty(300, 33),
    "many columns": lambda: torch.empty(3, 5000),
    "large": lambda: torch.empty(512, 600, dtype=torch.float64),
    "misaligned": lambda: torch.empty(641)[1:].view(16, 40),
    "half of the rows": lambda: torch.empty(24, 80).chunk(2, -1)[1],
    "every other column": lambda: torch.empty(24, 80)[:, ::2],
    "transposed": lambda: torch.empty(40, 24).t(),
    "three dimensions": lambda: torch.empty(4, 6, 80)[..., :40],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, driver):
    check(driver, *operands(LAYOUTS[layout]()))


def test_operands_of_different_layouts(driver):
    x = torch.empty(24, 40)
    bias = torch.empty(40)
    check(driver, x, bias, torch.empty(()).expand(24, 40), torch.empty(40).expand(24, 40))
    check(driver, x, bias, torch.empty(24, 1).expand(24, 40), torch.empty(40, 24).t())
    check(driver, x.t().contiguous().t(), bias, x, torch.empty(24, 80)[:, ::2])


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


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (2, 0, 3)], ids=str)
def test_empty(shape, driver):
    x = torch.empty(shape)
    bias = torch.empty(shape[-1])
    for b in (None, bias):
        ops.gate_forward(x, b, "normal")
        ops.gate_backward(x, x, b, "normal")
        ops.gate_double_backward(x, x, x, b, "normal")
    ops.gate_backward_bias(x, x, bias, "normal")
    assert driver.launches == []


# The SOI map


def check_soi(driver: State, x: Tensor, bias: Tensor | None, *index: int) -> None:
    """What all its operators start: each kernel has the operands, and a program for each tile."""
    seed = torch.tensor(1)
    y, mask = ops.soi_forward(x, bias, seed, "normal", *index)
    dx = ops.soi_backward(y, mask)
    dx_and_sums, dbias = ops.soi_backward_bias(y, mask)
    forward, backward, sums, add = driver.launches
    check_soi_forward(forward, {"y": y, "mask": mask, "x": x, "bias": bias, "seed": seed}, *index)

    check_launch(backward)
    v = backward.values
    assert [v[name] for name in ("dx", "dy", "mask")] == [t.data_ptr() for t in (dx, y, mask)]
    assert v["elements"] == x.numel()
    assert backward.grid == (-(-x.numel() // (8 * v["OCTETS"])), 1, 1)

    check_elements(sums, dx=dx_and_sums, dy=y)
    check_sums(sums, add, dbias)
    assert sums.values["mask"] == mask.data_ptr()
    assert sums.values["OCTETS"] == (x.size(-1) % 8 == 0)
    assert {call.stream for call in driver.launches} == {driver.stream}
    driver.launches.clear()


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
    if tensors["bias"] is not None:
        assert tensors["bias"].numel() == (v["repeat"] if v["REPEATED"] else columns)
    assert v["ROWS"] * v["COLUMNS"] == 256 * 8 * v["OCTETS"]
    tiles = [-(-rows // v["ROWS"]), -(-columns // v["COLUMNS"])]
    assert call.grid == (*(reversed(tiles) if v["COLUMNS_FIRST"] else tiles), 1)
    assert (v["offset"], v["row_length"], v["row_stride"]) == (offset, row_length, row_stride)
    assert v["GROUPED"] == (offset % 4 == 0 and row_length == 0)
    assert v["IN_ROWS"] == (row_length > 0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_soi_dtypes(dtype, driver):
    x = torch.empty(24, 40, dtype=dtype)
    check_soi(driver, x, None)
    check_soi(driver, x, torch.empty(40, dtype=dtype))


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


def test_soi_streams(driver):
    for driver.stream in (7, 2**40 + 8, 0):
        check_soi(driver, torch.empty(24, 40), None)


@pytest.mark.parametrize("shape", [(0,), (0, 8), (8, 0)], ids=str)
def test_soi_of_nothing(shape, driver):
    x = torch.empty(shape)
    y, mask = ops.soi_forward(x, torch.empty(shape[-1]), torch.tensor(1), "normal")
    ops.soi_backward(y, mask)
    ops.soi_backward_bias(y, mask)
    assert driver.launches == []


# The GLU


def check_glu(driver: State, dy: Tensor, x: Tensor, up: Tensor) -> None:
    """The kernels have the operands themselves."""
    y = ops.glu_forward(x, up, "normal")
    dx, dup = ops.glu_backward(dy, x, up, "normal")
    forward, backward = driver.launches
    check_elements(forward, out=y, other=None, factor=up, x=x, bias=None)
    check_elements(backward, dx=dx, dup=dup, dy=dy, x=x, up=up)
    driver.launches.clear()


def check_packed_glu(driver: State, dy: Tensor, x: Tensor) -> None:
    """The kernels have the halves, in place."""
    y = ops.glu_halves_forward(x, "normal")
    dx = ops.glu_halves_backward(dy, x, "normal")
    forward, backward = driver.launches
    gated, up = x.chunk(2, -1)
    d_gated, dup = dx.chunk(2, -1)
    check_elements(forward, out=y, other=None, factor=up, x=gated, bias=None)
    check_elements(backward, dx=d_gated, dup=dup, dy=dy, x=gated, up=up)
    driver.launches.clear()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_glu_dtypes(dtype, driver):
    dy, x = torch.empty(24, 40, dtype=dtype), torch.empty(24, 80, dtype=dtype)
    check_glu(driver, dy, dy, dy)
    check_glu(driver, dy, *x.chunk(2, -1))
    check_packed_glu(driver, dy, x)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_glu_layouts(layout, driver):
    x = LAYOUTS[layout]()
    like_x = torch.empty(x.shape, dtype=x.dtype)
    check_glu(driver, torch.empty((), dtype=x.dtype).expand(x.shape), x, like_x)
    if x.size(-1) % 2 == 0:  # dy has the gaps that the halves have
        check_packed_glu(driver, like_x.chunk(2, -1)[1], x)


def test_glu_vectors(driver):
    """Halves are promised to be aligned where they are: rows of whole vectors."""
    for columns, expected in ((40, 16), (36, None)):
        x = torch.empty(24, 2 * columns, dtype=torch.bfloat16)
        y = ops.glu_halves_forward(x, "normal")
        ops.glu_halves_backward(y, x, "normal")
        forward, backward = driver.launches
        assert [forward.divisors.get(name) for name in ("out", "factor", "x")] == [expected] * 3
        names = ("dx", "dup", "dy", "x", "up")
        assert [backward.divisors.get(name) for name in names] == [expected] * 5
        driver.launches.clear()


@pytest.mark.parametrize("shape", [(0,), (0, 8), (8, 0)], ids=str)
def test_glu_of_nothing(shape, driver):
    x = torch.empty(shape)
    ops.glu_backward(ops.glu_forward(x, x, "normal"), x, x, "normal")
    ops.glu_halves_backward(ops.glu_halves_forward(x, "normal"), x, "normal")
    assert driver.launches == []


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


def test_a_kernel_is_compiled_once(driver, compiled):
    stub_driver.launch._starts.clear()
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


def test_the_current_stream(driver):
    x = torch.empty(16)
    for driver.stream in (0, 7, 2**40 + 8, 0):
        forward(x)
        assert driver.launches.pop().stream == driver.stream
    driver.stream = 0


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
    driver.device = 0


def test_a_kernel_is_compiled_on_the_device_of_its_tensors(driver):
    stub_driver.launch._starts.clear()
    driver.device = 1
    forward(torch.empty(16))
    assert driver.device == 1
    assert driver.launches.pop().device == 0
    driver.device = 0


def test_a_failed_launch_is_an_exception(driver):
    x = torch.empty(16)
    forward(x)
    driver.error = stub_driver.LAUNCH_FAILED
    with pytest.raises(RuntimeError, match="unspecified launch failure"):
        forward(x)
    forward(x)
    assert len(driver.launches) == 2


def test_soi_of_more_than_two_to_the_31_elements(driver):
    x = torch.empty(2**31 + 64, dtype=torch.bfloat16)
    y, mask = ops.soi_forward(x, None, torch.tensor(1), "normal")
    ops.soi_backward(y, mask)
    forward, backward = driver.launches
    assert forward.values["columns"] == backward.values["elements"] == 2**31 + 64
    assert forward.grid == backward.grid == (2**19 + 1, 1, 1)
