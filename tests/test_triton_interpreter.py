"""The Triton kernels give the bits of the CPU's, for every operator and in any layout."""

from collections.abc import Iterator
from importlib.util import find_spec

import oracle
import pytest
import test_soi_cuda_on_cpu as soi
import torch
import triton_interpreter
from test_cuda_on_cpu import (
    HALF,
    LAYOUTS,
    Results,
    assert_same,
    every_dtype,
    random,
    results,
    special_values,
)
from torch import Tensor

from gelu_kernels.triton_kernels import tuning

ops = torch.ops.gelu_kernels

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU"),
    pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton"),
]


def check(gate: str, x: Tensor, dy: Tensor, ddx: Tensor, bias: Tensor | None = None) -> None:
    expected = results(gate, x, dy, ddx, bias)
    with triton_interpreter.enabled():
        actual = results(gate, x, dy, ddx, bias)
    assert_same(actual, expected)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_every_input_of_16_bits(gate: str, dtype: torch.dtype) -> None:
    x = oracle.every_16_bit_input(dtype)
    dy, ddx = (random(x.shape, dtype) for _ in range(2))
    check(gate, x, dy, ddx)
    check(gate, *(t.view(64, 1024) for t in (x, dy, ddx)), random((1024,), dtype))


@every_dtype
def test_special_values(gate: str, dtype: torch.dtype) -> None:
    values = special_values(dtype)
    x, dy, ddx = torch.meshgrid(values, values, values[::3], indexing="ij")
    check(gate, x, dy, ddx)
    check(gate, *(t.reshape(-1, 11)[:40] for t in (x, dy, ddx)), values[:11])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, dtype: torch.dtype) -> None:
    """The first rows: the interpreter takes a minute for thousands."""
    x, dy = (t[:20] for t in LAYOUTS[layout](lambda *shape: random(shape, dtype)))
    ddx = random(x.shape, dtype)
    check("normal", x, dy, ddx)
    check("normal_tanh", x, dy, ddx, random((2 * x.size(-1),), dtype)[::2])
    check("normal", x, dy, ddx, random((x.size(-1),), dtype))


# The SOI map


def check_soi(
    gate: str,
    x: Tensor,
    bias: Tensor | None = None,
    index: tuple[int, ...] = (),
    dy: Tensor | None = None,
    seed: int = soi.SEED,
) -> None:
    """y, the mask, dx, and the gradient of a bias."""
    arguments = gate, x, random(x.shape, x.dtype) if dy is None else dy, bias, index, seed
    expected = soi.results(*arguments)
    with triton_interpreter.enabled():
        actual = soi.results(*arguments)
    assert torch.equal(actual.pop("mask"), expected.pop("mask"))
    assert_same(actual, expected)


@pytest.fixture(params=["small", "large"])
def tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Those of large tensors have several octets for a thread."""
    if request.param == "large":
        monkeypatch.setattr(tuning, "SMALL_BYTES", 0)
    tuning.soi_tiles.cache_clear()
    yield
    tuning.soi_tiles.cache_clear()


@pytest.mark.parametrize("seed", [soi.SEED, -1])
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_soi_of_every_input_of_16_bits(gate: str, dtype: torch.dtype, seed: int) -> None:
    x = oracle.every_16_bit_input(dtype)
    check_soi(gate, x, seed=seed)
    check_soi(gate, x.view(64, 1024), random((1024,), dtype), seed=seed)


@every_dtype
def test_soi_of_special_values(gate: str, dtype: torch.dtype, tiles: None) -> None:
    values = special_values(dtype)
    x, dy = torch.meshgrid(values, values.repeat(8), indexing="ij")
    check_soi(gate, x, dy=dy)
    check_soi(gate, x.contiguous(), values.repeat(8), dy=dy)
    check_soi(gate, x[:, :33].contiguous(), values.repeat(2)[:33], dy=dy[:, :33])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_soi_of_layouts(layout: str, dtype: torch.dtype) -> None:
    x, dy = (t[:20] for t in LAYOUTS[layout](lambda *shape: random(shape, dtype)))
    check_soi("normal", x, dy=dy)
    check_soi("normal", x, random((2 * x.size(-1),), dtype)[::2], dy=dy)
    check_soi("normal", x, random((x.size(-1) + 1,), dtype)[1:])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("index", soi.INDICES, ids=str)
def test_soi_of_global_indices(index: tuple[int, ...], dtype: torch.dtype, tiles: None) -> None:
    x = random((5, 1000), dtype)
    check_soi("normal", x, None, index)
    check_soi("normal", x, random((1000,), dtype), index)
    check_soi("normal", random((5, 1001), dtype)[:, :999], random((999,), dtype), index)


# The GLU


def glu_results(gate: str, dy: Tensor, x: Tensor, up: Tensor | None) -> Results:
    """Without up, x is packed."""
    if up is None:
        y, dx = ops.glu_halves_forward(x, gate), ops.glu_halves_backward(dy, x, gate)
        return {"y": y, "dx": dx}
    dx, dup = ops.glu_backward(dy, x, up, gate)
    return {"y": ops.glu_forward(x, up, gate), "dx": dx, "dup": dup}


def check_glu(gate: str, dy: Tensor, x: Tensor, up: Tensor | None = None) -> None:
    expected = glu_results(gate, dy, x, up)
    with triton_interpreter.enabled():
        actual = glu_results(gate, dy, x, up)
    assert_same(actual, expected)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_glu_of_every_input_of_16_bits(gate: str, dtype: torch.dtype) -> None:
    x = oracle.every_16_bit_input(dtype)
    dy, up = (random(x.shape, dtype, 30) for _ in range(2))
    check_glu(gate, dy, x, up)
    dy, x, up = (t.view(256, 256) for t in (dy, x, up))
    check_glu(gate, dy, torch.cat([x, up], -1))


@every_dtype
def test_glu_of_special_values(gate: str, dtype: torch.dtype) -> None:
    values = special_values(dtype)
    x, up, dy = torch.meshgrid(values, values, values[::3], indexing="ij")
    check_glu(gate, dy, x, up)
    check_glu(gate, dy, torch.cat([x, up], -1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_glu_of_layouts(layout: str, dtype: torch.dtype) -> None:
    """Of x and up, and of x and dy; packed, dy may have the gaps that the halves have."""
    x, other = (t[:20] for t in LAYOUTS[layout](lambda *shape: random(shape, dtype)))
    like_x = random(x.shape, dtype)
    check_glu("normal", like_x, x, other)
    check_glu("normal", other, x, like_x)
    check_glu("normal", like_x, other, x)
    even = x.size(-1) // 2 * 2
    dy = other[..., -even // 2 :]
    check_glu("normal", dy, x[..., -even:])
    check_glu("normal", dy.contiguous(), x[..., -even:])


@every_dtype
@pytest.mark.parametrize(
    "shape", [(0,), (0, 4), (3, 0), (1,), (9,), (5, 1), (5, 7), (5, 33), (2, 3, 20)], ids=str
)
def test_glu_of_sizes(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    dy, x, up = (random(shape, dtype) for _ in range(3))
    check_glu("logistic_1702", dy, x, up)
    check_glu("logistic_1702", dy, torch.cat([x, up], -1))


def test_glu_of_scalars() -> None:
    check_glu("normal", *(random((), torch.float32) for _ in range(3)))
