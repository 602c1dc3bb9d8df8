"""The passes whose results are quantised, by the core operators: what the tests of their numbers
and of the backends' bits share."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from tests.oracles.quantized_oracle import FORMATS, Recipe

ops = torch.ops.gelu_kernels

DTYPES = (torch.bfloat16, torch.float32)
FLOAT8 = tuple(FORMATS)
SWIZZLE = "SWIZZLE_32_4_4"
RECIPES = [
    *(Recipe("RowWise", mode) for mode in ("amax", "floor", "rceil")),
    *(Recipe("BlockWise1x128", mode) for mode in ("amax", "floor", "rceil")),
    *(Recipe("BlockWise1x128", mode, packed=True) for mode in ("floor", "rceil")),
    *(Recipe("BlockWise1x32", mode) for mode in ("floor", "rceil")),
    *(Recipe("BlockWise1x32", mode, SWIZZLE) for mode in ("floor", "rceil")),
]


class Inputs(NamedTuple):
    dy: Tensor
    x: Tensor
    up: Tensor
    bias: Tensor
    weight: Tensor

    @property
    def halves(self) -> Tensor:
        return torch.cat([self.x, self.up], -1)

    def to(self, device: str) -> "Inputs":
        return Inputs(*(t.to(device) for t in self))


class Pass(NamedTuple):
    op: str  # the unquantised operator, which takes the same tensors
    tensors: Callable[[Inputs], tuple[Tensor | None, ...]]
    numbers: tuple[float | None, ...] = ()  # of a gated linear unit: limit and up_offset

    def plain(self, inputs: Inputs, gate: str) -> tuple[Tensor, ...]:
        results = getattr(ops, self.op)(*self.tensors(inputs), gate, *self.numbers)
        return (results,) if isinstance(results, Tensor) else results

    def call(
        self,
        inputs: Inputs,
        gate: str,
        dtype: torch.dtype,
        recipe: Recipe,
        along: str,
        offsets: Tensor | None = None,
    ) -> tuple[str, tuple[object, ...]]:
        """The operator that quantises, and its arguments."""
        tensors, op = self.tensors(inputs), "quantized_" + self.op
        if op == "quantized_glu_halves_forward":
            (x, weight), op = tensors, "quantized_glu_forward"
            tensors = x, None, weight
        if op.endswith("forward"):
            tensors += (None,)  # the scale
        options = dtype, recipe.scaling, along, *recipe[1:]
        return op, (*tensors, offsets, gate, *self.numbers, *options)

    def quantised(self, inputs: Inputs, *options: object) -> tuple[Tensor, ...]:
        """data, scales, column_data and column_scales of each result; then sums."""
        op, arguments = self.call(inputs, *options)
        return getattr(ops, op)(*arguments)


PLAIN, CLAMPED = (None, 0.0), (1.5, 0.75)
PASSES = {
    "gate": Pass("gate_forward", lambda t: (t.x, None)),
    "biased gate": Pass("gate_forward", lambda t: (t.x, t.bias)),
    "GLU": Pass("glu_forward", lambda t: (t.x, t.up, None), PLAIN),
    "clamped GLU": Pass("glu_forward", lambda t: (t.x, t.up, None), CLAMPED),
    "weighted GLU": Pass("glu_forward", lambda t: (t.x, t.up, t.weight), CLAMPED),
    "GLU of halves": Pass("glu_halves_forward", lambda t: (t.halves, None), PLAIN),
    "weighted GLU of halves": Pass("glu_halves_forward", lambda t: (t.halves, t.weight), PLAIN),
    "backward": Pass("gate_backward", lambda t: (t.dy, t.x, None)),
    "biased backward": Pass("gate_backward", lambda t: (t.dy, t.x, t.bias)),
    "backward with dbias": Pass("gate_backward_bias", lambda t: (t.dy, t.x, t.bias)),
    "GLU backward": Pass("glu_backward", lambda t: (t.dy, t.x, t.up, None), PLAIN),
    "clamped GLU backward": Pass("glu_backward", lambda t: (t.dy, t.x, t.up, None), CLAMPED),
    "weighted GLU backward": Pass("glu_backward", lambda t: (t.dy, t.x, t.up, t.weight), PLAIN),
    "GLU backward with dweight": Pass(
        "glu_backward_weight", lambda t: (t.dy, t.x, t.up, t.weight), CLAMPED
    ),
    "halves backward": Pass("glu_halves_backward", lambda t: (t.dy, t.halves, None), PLAIN),
    "weighted halves backward": Pass(
        "glu_halves_backward", lambda t: (t.dy, t.halves, t.weight), CLAMPED
    ),
    "halves backward with dweight": Pass(
        "glu_halves_backward_weight", lambda t: (t.dy, t.halves, t.weight), PLAIN
    ),
}

SPECIAL = [0.0, -0.0, 1e-45, 1e-39, -1e-38, 3e38, 448, -57344, math.inf, -math.inf, math.nan]


def spread(*shape: int) -> Tensor:
    """Rows and columns of many magnitudes."""
    return torch.randn(shape) * torch.exp2(torch.randint(-20, 8, (*shape[:-1], 1)).float())


def numbers(*shape: int) -> Tensor:
    """In blocks of many magnitudes; one number in a hundred is a special value, in a part."""
    x = 3 * torch.randn(shape)
    exponents = torch.randint(-8, 9, (math.prod(shape) // 16,)).repeat_interleave(16)
    x *= torch.exp2(torch.where(exponents.abs() < 8, 0, 16 * exponents)).view(shape)
    special = torch.tensor(SPECIAL)
    chosen = special[torch.randint(len(special), shape)]
    # In the other rows and columns, no block has an infinity or NaN.
    rows, columns = (torch.arange(n) % 4 == 0 for n in shape)
    is_special = (torch.rand(shape) < 0.01) & rows[:, None] & columns
    return torch.where(is_special, chosen, x)


def inputs_of(dtype: torch.dtype, rows: int, columns: int, make: Callable = numbers) -> Inputs:
    matrices = [make(rows, columns) for _ in range(3)]
    vectors = 3 * torch.randn(columns), torch.randn(rows)
    return Inputs(*(t.to(dtype) for t in (*matrices, *vectors)))
