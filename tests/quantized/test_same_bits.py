"""The other backends quantise to the CPU's bits, which test_quantized.py holds to the
specifications."""

import math
from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

from tests import bits
from tests.backends.same_bits import every, needs_triton_ptx, on_backends
from tests.calls import GATES
from tests.cases import each
from tests.devices import BACKENDS, kernels_for
from tests.layouts import LAYOUTS

ops = torch.ops.gelu_kernels

MX, NO_SWIZZLE = "BlockWise1x32", "NO_SWIZZLE"
FORMATS = torch.float8_e4m3fn, torch.float8_e5m2
DTYPES = torch.bfloat16, torch.float32
SCALINGS = "TensorWise", "RowWise", "BlockWise1x128"
Results = tuple[Tensor, ...]

# By inputs, which are x, up, dy and a bias, and by options: dtype, along, mode and swizzle.
PASSES: dict[str, Callable[..., Results]] = {
    "gate": lambda x, up, dy, b, g, d, *o: ops.quantized_gate_forward(x, None, None, g, d, MX, *o),
    "biased gate": lambda x, up, dy, b, g, d, *o: ops.quantized_gate_forward(
        x, b, None, g, d, MX, *o
    ),
    "glu": lambda x, up, dy, b, g, d, *o: ops.quantized_glu_forward(x, up, None, g, d, MX, *o),
    "glu of halves": lambda x, up, dy, b, g, d, *o: ops.quantized_glu_forward(
        torch.cat([x, up], -1), None, None, g, d, MX, *o
    ),
    "backward": lambda x, up, dy, b, *o: ops.quantized_gate_backward(dy, x, None, *o),
    "biased backward": lambda x, up, dy, b, *o: ops.quantized_gate_backward(dy, x, b, *o),
    "backward with dbias": lambda x, up, dy, b, *o: ops.quantized_gate_backward_bias(dy, x, b, *o),
    "glu backward": lambda x, up, dy, b, *o: ops.quantized_glu_backward(dy, x, up, *o),
    "glu backward of halves": lambda x, up, dy, b, *o: ops.quantized_glu_halves_backward(
        dy, torch.cat([x, up], -1), *o
    ),
}

LAYOUT = {"row": NO_SWIZZLE, "column": NO_SWIZZLE, "both": "SWIZZLE_32_4_4"}


def numbers(*shape: int) -> Tensor:
    """In blocks of many magnitudes; one number in a hundred is a special value."""
    x = 3 * torch.randn(shape)
    exponents = torch.randint(-8, 9, (math.prod(shape) // 16,)).repeat_interleave(16)
    x *= torch.exp2(torch.where(exponents.abs() < 8, 0, 16 * exponents)).view(shape)
    special = torch.tensor([0.0, -0.0, 1e-45, 1e-39, -1e-38, 3e38, 448, -57344, math.inf, math.nan])
    chosen = special[torch.randint(len(special), shape)]
    return torch.where(torch.rand(shape) < 0.01, chosen, x)


def inputs(dtype: torch.dtype, rows: int, columns: int) -> list[Tensor]:
    torch.manual_seed(1)
    matrices = [numbers(rows, columns) for _ in range(3)]
    return [t.to(dtype) for t in (*matrices, 3 * torch.randn(columns))]


def check(backend: str, call: Callable[..., Results], tensors: list[Tensor], *options) -> None:
    expected = call(*tensors, *options)
    with kernels_for(backend) as device:
        results = call(*(t.to(device) for t in tensors), *options)
    for result, e in zip(results, expected, strict=True):
        assert (result.dtype, result.stride()) == (e.dtype, e.stride())
        if e.dtype.itemsize == 1:
            assert bits.same(result.cpu(), e)
        else:
            assert bits.differing(result.cpu(), e) == 0


every_backend = pytest.mark.parametrize("backend", BACKENDS)


def is_rare(gate: str, dtype: torch.dtype = torch.bfloat16, **_: object) -> bool:
    return gate != GATES[0] or dtype != torch.bfloat16


@every_backend
@each(is_rare, gate=GATES, dtype=DTYPES, name=PASSES)
def test_passes(backend: str, gate: str, dtype: torch.dtype, name: str) -> None:
    """In tiles with a ragged end."""
    tensors = inputs(dtype, 96, 160)
    options = gate, FORMATS[0], "both", "rceil", LAYOUT["both"]
    check(backend, PASSES[name], tensors, *options)


@every_backend
@each(is_rare, gate=GATES, name=["gate", "backward"])
def test_any_bfloat16(backend: str, gate: str, name: str) -> None:
    """As x, and as dy, in a random order."""
    every_number = bits.any_numbers(torch.bfloat16)
    mixed = every_number.flatten()[torch.randperm(every_number.numel())].view(-1, 256)
    ordinary = torch.randn_like(mixed)
    for x, dy in ((mixed, ordinary), (ordinary, mixed)):
        tensors = [x, ordinary, dy, ordinary[0]]
        check(backend, PASSES[name], tensors, gate, FORMATS[0], "both", "floor", LAYOUT["both"])


@pytest.mark.parametrize(
    "backend, along",
    on_backends([("row",), ("column",), ("both",)], every, "both".__eq__),
)
@each(dtype=DTYPES)
def test_sums(backend: str, dtype: torch.dtype, along: str) -> None:
    """Sums that depend on their order, over two blocks of rows."""
    torch.manual_seed(1)
    *tensors, bias = (3 * torch.randn(rows, 160).to(dtype) for rows in (2080, 2080, 2080, 1))
    options = GATES[0], FORMATS[0], along, "rceil", LAYOUT[along]
    check(backend, PASSES["backward with dbias"], [*tensors, bias[0]], *options)


@every_backend
def test_amax_is_of_the_matrix_alone(backend: str) -> None:
    """And not of the bias in a tile's rows beyond the matrix."""
    bias = torch.linspace(1, 9, 384)
    scale = torch.tensor(1.0)
    options = GATES[0], FORMATS[0], "TensorWise", "row", "floor", NO_SWIZZLE

    def forward(x: Tensor, bias: Tensor, scale: Tensor) -> Results:
        return ops.quantized_gate_forward(x, bias, scale, *options)[:2]

    check(backend, forward, [-bias.expand(33, -1), bias, scale])


@every_backend
@each(
    lambda name, dtype, float8, along, mode: (
        (name, dtype, float8) != ("gate", torch.bfloat16, FORMATS[1])
    ),
    name=PASSES,
    dtype=DTYPES,
    float8=FORMATS,
    along=["row", "column", "both"],
    mode=["floor", "rceil"],
)
def test_options(
    backend: str, name: str, dtype: torch.dtype, float8: torch.dtype, along: str, mode: str
) -> None:
    sizes = [(32, 32), (96, 1056)] if along != "row" else [(1, 32), (31, 1056)]
    for rows, columns in sizes:
        tensors = inputs(dtype, rows, columns)
        check(backend, PASSES[name], tensors, GATES[0], float8, along, mode, LAYOUT[along])


@every_backend
@each(is_rare, gate=GATES, dtype=DTYPES, scaling=SCALINGS)
def test_float_scales(backend: str, gate: str, dtype: torch.dtype, scaling: str) -> None:
    """In whole rows, and in rows that a program passes over twice."""
    options = scaling, "row", "floor", NO_SWIZZLE

    def forward(x: Tensor, up: Tensor, dy: Tensor, bias: Tensor, float8: torch.dtype) -> Results:
        scale = torch.tensor(0.0123, device=x.device) if scaling == "TensorWise" else None
        return (
            *ops.quantized_gate_forward(x, None, scale, gate, float8, *options)[:2],
            *ops.quantized_gate_forward(x, bias, scale, gate, float8, *options)[:2],
            *ops.quantized_glu_forward(x, up, scale, gate, float8, *options)[:2],
        )

    for float8, (rows, columns) in zip(FORMATS, [(33, 384), (2, 17408)], strict=True):
        check(backend, forward, inputs(dtype, rows, columns), float8)


@every_backend
@each(layout=LAYOUTS)
def test_layouts(backend: str, layout: str) -> None:
    def make(*shape: int) -> Tensor:
        return (3 * torch.randn(shape)).bfloat16()

    torch.manual_seed(1)
    tensors = [LAYOUTS[layout](make, (64, 256)) for _ in range(3)]
    options = GATES[0], FORMATS[0], "both", "rceil", LAYOUT["both"]
    check(backend, PASSES["glu backward"], [*tensors, make(256)], *options)


@each(lambda name: name != "gate", name=["gate", "glu backward"])
def test_triton_without_instructions_of_nvidia(name: str) -> None:
    """And for NVIDIA GPUs before sm_89, which have no conversion to eight bits."""
    needs_triton_ptx()
    for backend, float8 in product(["triton_portable", "triton_ptx sm_80"], FORMATS):
        tensors = inputs(torch.bfloat16, 64, 160)
        check(backend, PASSES[name], tensors, GATES[0], float8, "both", "floor", NO_SWIZZLE)
