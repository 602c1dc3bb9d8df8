"""The CUDA kernels of the SOI map give the bits of the CPU's: y, mask, dx and dbias, in any layout
and for any place in a larger tensor. They run on a CPU here (see tests/cuda_on_cpu).
"""

import cuda_on_cpu
import oracle
import pytest
import torch
from test_cuda_on_cpu import HALF, LAYOUTS, Results, assert_same, every_dtype, random
from test_cuda_on_cpu import special_values as special_values_of
from torch import Tensor

ops = torch.ops.gelu_kernels

SEED = 0x123456789ABCDEF


def takes_bias_gradient(x: Tensor) -> bool:
    """Long rows are left out: they are many blocks, of threads that wait for one another."""
    return x.dim() > 0 and x.size(-1) < 20_000


def results(
    gate: str, x: Tensor, dy: Tensor, bias: Tensor | None, index: tuple[int, ...], seed: int
) -> Results:
    y, mask = ops.soi_forward(x, bias, torch.tensor(seed), gate, *index)
    named = {"y": y, "mask": mask, "soi_backward": ops.soi_backward(dy, mask)}
    if takes_bias_gradient(x):
        named["dx"], named["dbias"] = ops.soi_backward_bias(dy, mask)
    return named


def check(
    gate: str,
    x: Tensor,
    dy: Tensor | None = None,
    bias: Tensor | None = None,
    index: tuple[int, ...] = (),
    seed: int = SEED,
) -> None:
    dy = random(x.shape, x.dtype) if dy is None else dy
    arguments = gate, x, dy, bias, index, seed
    expected = results(*arguments)
    before = cuda_on_cpu.launches()
    with cuda_on_cpu.enabled():
        actual = results(*arguments)
    # One each, and two for the bias gradient.
    expected_launches = 4 if takes_bias_gradient(x) else 2
    assert cuda_on_cpu.launches() == before + (expected_launches if x.numel() > 0 else 0)
    mask, expected_mask = actual.pop("mask"), expected.pop("mask")
    assert torch.equal(mask, expected_mask)
    assert_same(actual, expected)


@every_dtype
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 63, 64, 65, 1000, 4099, 100_003])
def test_sizes(gate: str, size: int, dtype: torch.dtype) -> None:
    check(gate, random((size,), dtype))
    check(gate, random((size,), dtype), bias=random((size,), dtype))
    check(gate, random((3, size), dtype), bias=random((size,), dtype))
    check(gate, random((size + 1,), dtype)[1:])


def test_scalars(gate: str) -> None:
    check(gate, random((), torch.float32))


@every_dtype
def test_special_values(gate: str, dtype: torch.dtype) -> None:
    values = special_values_of(dtype)
    x, dy = torch.meshgrid(values, values.repeat(50), indexing="ij")
    check(gate, x, dy)
    for t in (x.contiguous(), x.contiguous()[:, :1000], x.contiguous()[:, 1:]):
        check(gate, t, dy[:, : t.size(1)])
        check(gate, t, dy[:, : t.size(1)], values.repeat(50)[: t.size(1)])


@pytest.mark.parametrize("seed", [0, -1, 2**63 - 1, 2**32])
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_every_input_of_16_bits(gate: str, dtype: torch.dtype, seed: int) -> None:
    x = oracle.every_16_bit_input(dtype)
    check(gate, x, seed=seed)
    check(gate, x.view(128, 512), bias=random((512,), dtype), seed=seed)


@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, dtype: torch.dtype) -> None:
    x, dy = LAYOUTS[layout](lambda *shape: random(shape, dtype))
    for t in (dy, random(x.shape, dtype)):
        check("normal", x, t)
        check("normal", x, t, random((2 * x.size(-1),), dtype)[::2])
        check("normal", x, t, random((x.size(-1) + 1,), dtype)[1:])


@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.contiguous_format], ids=str)
def test_channels_last(memory_format: torch.memory_format) -> None:
    x = random((5, 16, 7, 24), torch.bfloat16).to(memory_format=memory_format)
    check("normal", x, random(x.shape, x.dtype).to(memory_format=memory_format))
    check("normal", x, None, random((24,), x.dtype))


INDICES = [
    (4,),
    (4 * 7919,),
    (1,),
    (2,),
    (3,),
    (2**34 - 400,),  # the counter's high word begins to count
    (2**34 - 401,),
    (2**40 + 8,),
    (0, 1000, 3000),  # as many columns as x has
    (1000, 1000, 3000),
    (8, 512, 1024),
    (3, 100, 1001),
    (5, 17, 100),
    (0, 1, 7),
    (11, 5, 0),
    (2**34 - 30, 256, 300),
    (2, 10_000_000, 3),
]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_global_indices(gate: str, index: tuple[int, ...], dtype: torch.dtype) -> None:
    check(gate, random((9, 1000), dtype), index=index)
    check(gate, random((9, 1001), dtype)[:, :1000], None, random((1000,), dtype), index)


# Offsets beyond 2^31, in memory that is reserved and hardly touched


@pytest.mark.parametrize("columns", [512, 301], ids=["vectors", "elements"])
def test_rows_far_apart(columns: int) -> None:
    """The last is 6 GB from the first."""
    storage = torch.empty(3 * 2**30 + columns, dtype=torch.bfloat16)
    x = storage.as_strided((4, columns), (2**30, 1))
    x.copy_(random(x.shape, x.dtype))
    check("normal", x, x, random((columns,), x.dtype))


@pytest.mark.parametrize("offset", [0, 1], ids=["aligned", "misaligned"])
@pytest.mark.parametrize("biased", [False, True])
def test_more_than_two_to_the_31_elements(biased: bool, offset: int) -> None:
    """Only the first and the last blocks of a launch run."""
    columns, n = 1000, 2000
    rows = 2**31 // columns + 2
    x = torch.empty(offset + rows * columns, dtype=torch.bfloat16)[offset:].view(rows, columns)
    bias = random((columns,), x.dtype) if biased else None
    x[:2], x[-2:] = random((2, columns), x.dtype), random((2, columns), x.dtype)
    seed = torch.tensor(SEED)
    with cuda_on_cpu.enabled(), cuda_on_cpu.only_ends(16):
        y, mask = ops.soi_forward(x, bias, seed, "normal")
        dx = ops.soi_backward(x, mask)
        dx_of_two, _ = ops.soi_backward_bias(x, mask)
    for rows, bytes_, at in (
        (x[:2], mask[: n // 8], 0),
        (x[-2:], mask[-n // 8 :], x.numel() - n),
    ):
        end = slice(2) if at == 0 else slice(-2, None)
        expected_y, expected_mask = ops.soi_forward(rows.clone(), bias, seed, "normal", at)
        assert torch.equal(bytes_, expected_mask)
        assert_same({"y": y[end]}, {"y": expected_y})
        expected_dx = ops.soi_backward(rows.clone(), expected_mask)
        assert_same({"dx": dx[end]}, {"dx": expected_dx})
        assert_same({"dx": dx_of_two[end]}, {"dx": expected_dx})
