"""The core operators whose results are quantised. They write their first arguments, the results:
data, scales, column_data and column_scales. An unwanted direction has empty results."""

import torch
from torch import Tensor, dtype

from gelu_kernels.triton_kernels.gate.operators import gate_backward_bias
from gelu_kernels.triton_kernels.glu.operators import (
    glu_backward_weight,
    glu_halves_backward_weight,
)
from gelu_kernels.triton_kernels.quantized.over_inputs import (
    Inputs,
    with_given_scale,
    with_own_scales,
)
from gelu_kernels.triton_kernels.quantized.recipe import Recipe, Result

ANY_GATE = "normal"  # of a kernel that evaluates none


def _forward(op: str, result: Result, inputs: Inputs, recipe: Recipe, scale: Tensor | None) -> None:
    if scale is not None:
        with_given_scale(op, result, inputs, recipe, scale)
    else:
        with_own_scales(op, (result,), inputs, recipe)


def _cast(op: str, result: Result, dx: Tensor, recipe: Recipe) -> None:
    """Quantises a gradient that another operator has computed."""
    with_own_scales(op, (result,), Inputs(ANY_GATE, dx, is_cast=True), recipe)


def quantized_gate_forward(
    data: Tensor, scales: Tensor, column_data: Tensor, column_scales: Tensor, x: Tensor,
    bias: Tensor | None, scale: Tensor | None, offsets: Tensor | None, gate: str, dtype: dtype,
    scaling: str, along: str, mode: str, swizzle: str, packed: bool,
) -> None:  # fmt: skip
    result, inputs = (data, scales, column_data, column_scales), Inputs(gate, x, bias=bias)
    recipe = Recipe(offsets, dtype, scaling, along, mode, swizzle, packed)
    _forward("quantized_gate_forward", result, inputs, recipe, scale)


def quantized_glu_forward(
    data: Tensor, scales: Tensor, column_data: Tensor, column_scales: Tensor, x: Tensor,
    up: Tensor | None, weight: Tensor | None, scale: Tensor | None, offsets: Tensor | None,
    gate: str, limit: float | None, up_offset: float, dtype: dtype, scaling: str, along: str,
    mode: str, swizzle: str, packed: bool,
) -> None:  # fmt: skip
    if up is None:
        x, up = x.chunk(2, -1)
    result = data, scales, column_data, column_scales
    inputs = Inputs(gate, x, up=up, weight=weight, limit=limit, up_offset=up_offset)
    recipe = Recipe(offsets, dtype, scaling, along, mode, swizzle, packed)
    _forward("quantized_glu_forward", result, inputs, recipe, scale)


def quantized_gate_backward(
    data: Tensor, scales: Tensor, column_data: Tensor, column_scales: Tensor, dy: Tensor,
    x: Tensor, bias: Tensor | None, offsets: Tensor | None, gate: str, dtype: dtype, scaling: str,
    along: str, mode: str, swizzle: str, packed: bool,
) -> None:  # fmt: skip
    result, inputs = (data, scales, column_data, column_scales), Inputs(gate, x, dy=dy, bias=bias)
    recipe = Recipe(offsets, dtype, scaling, along, mode, swizzle, packed)
    with_own_scales("quantized_gate_backward", (result,), inputs, recipe)


def quantized_gate_backward_bias(
    data: Tensor, scales: Tensor, column_data: Tensor, column_scales: Tensor, dbias: Tensor,
    dy: Tensor, x: Tensor, bias: Tensor, offsets: Tensor | None, gate: str, dtype: dtype,
    scaling: str, along: str, mode: str, swizzle: str, packed: bool,
) -> None:  # fmt: skip
    """The sums take the pass that quantises in blocks from the first row on; else one of their
    own."""
    op, result = "quantized_gate_backward_bias", (data, scales, column_data, column_scales)
    recipe = Recipe(offsets, dtype, scaling, along, mode, swizzle, packed)
    if recipe.block and not recipe.has_groups:
        inputs = Inputs(gate, x, dy=dy, bias=bias)
        with_own_scales(op, (result,), inputs, recipe, dbias=dbias)
    else:
        dx = torch.empty_like(x)
        gate_backward_bias(dx, dbias, dy, x, bias, gate)
        _cast(op, result, dx, recipe)


def quantized_glu_backward(
    data: Tensor, scales: Tensor, column_data: Tensor, column_scales: Tensor, up_data: Tensor,
    up_scales: Tensor, up_column_data: Tensor, up_column_scales: Tensor, dy: Tensor, x: Tensor,
    up: Tensor, weight: Tensor | None, offsets: Tensor | None, gate: str, limit: float | None,
    up_offset: float, dtype: dtype, scaling: str, along: str, mode: str, swizzle: str,
    packed: bool,
) -> None:  # fmt: skip
    to_dx = data, scales, column_data, column_scales
    to_dup = up_data, up_scales, up_column_data, up_column_scales
    inputs = Inputs(gate, x, up, dy, weight=weight, limit=limit, up_offset=up_offset)
    recipe = Recipe(offsets, dtype, scaling, along, mode, swizzle, packed)
    with_own_scales("quantized_glu_backward", (to_dx, to_dup), inputs, recipe)


def quantized_glu_backward_weight(
    data: Tensor, scales: Tensor, column_data: Tensor, column_scales: Tensor, up_data: Tensor,
    up_scales: Tensor, up_column_data: Tensor, up_column_scales: Tensor, dweight: Tensor,
    dy: Tensor, x: Tensor, up: Tensor, weight: Tensor, offsets: Tensor | None, gate: str,
    limit: float | None, up_offset: float, dtype: dtype, scaling: str, along: str, mode: str,
    swizzle: str, packed: bool,
) -> None:  # fmt: skip
    op, dx, dup = "quantized_glu_backward_weight", torch.empty_like(x), torch.empty_like(up)
    recipe = Recipe(offsets, dtype, scaling, along, mode, swizzle, packed)
    glu_backward_weight(dx, dup, dweight, dy, x, up, weight, gate, limit, up_offset)
    _cast(op, (data, scales, column_data, column_scales), dx, recipe)
    _cast(op, (up_data, up_scales, up_column_data, up_column_scales), dup, recipe)


def quantized_glu_halves_backward(
    data: Tensor, scales: Tensor, column_data: Tensor, column_scales: Tensor, dy: Tensor,
    x: Tensor, weight: Tensor | None, offsets: Tensor | None, gate: str, limit: float | None,
    up_offset: float, dtype: dtype, scaling: str, along: str, mode: str, swizzle: str,
    packed: bool,
) -> None:  # fmt: skip
    result = data, scales, column_data, column_scales
    x, up = x.chunk(2, -1)
    inputs = Inputs(gate, x, up, dy, weight=weight, limit=limit, up_offset=up_offset)
    recipe = Recipe(offsets, dtype, scaling, along, mode, swizzle, packed)
    with_own_scales("quantized_glu_halves_backward", (result, result), inputs, recipe)


def quantized_glu_halves_backward_weight(
    data: Tensor, scales: Tensor, column_data: Tensor, column_scales: Tensor, dweight: Tensor,
    dy: Tensor, x: Tensor, weight: Tensor, offsets: Tensor | None, gate: str,
    limit: float | None, up_offset: float, dtype: dtype, scaling: str, along: str, mode: str,
    swizzle: str, packed: bool,
) -> None:  # fmt: skip
    op, dx = "quantized_glu_halves_backward_weight", torch.empty_like(x)
    recipe = Recipe(offsets, dtype, scaling, along, mode, swizzle, packed)
    glu_halves_backward_weight(dx, dweight, dy, x, weight, gate, limit, up_offset)
    _cast(op, (data, scales, column_data, column_scales), dx, recipe)
