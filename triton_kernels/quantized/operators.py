"""The core operators whose results are quantised. They write their first arguments, the results:
data, scales, column_data and column_scales. An unwanted direction has empty results."""

from torch import Tensor, dtype

from gelu_kernels.triton_kernels.quantized.over_inputs import (
    Inputs,
    Result,
    in_blocks,
    with_floats,
)


def _forward(
    op: str, result: Result, inputs: Inputs, scale: Tensor | None, scaling: str, mode: str,
    swizzle: str,
) -> None:  # fmt: skip
    if scaling == "BlockWise1x32":
        in_blocks(op, (result,), inputs, mode, swizzle)
    else:
        with_floats(op, *result[:2], inputs, scale, scaling)


def quantized_gate_forward(
    data: Tensor, scales: Tensor, column_data: Tensor, column_scales: Tensor, x: Tensor,
    bias: Tensor | None, scale: Tensor | None, gate: str, dtype: dtype, scaling: str, along: str,
    mode: str, swizzle: str,
) -> None:  # fmt: skip
    result, inputs = (data, scales, column_data, column_scales), Inputs(gate, x, bias=bias)
    _forward("quantized_gate_forward", result, inputs, scale, scaling, mode, swizzle)


def quantized_glu_forward(
    data: Tensor, scales: Tensor, column_data: Tensor, column_scales: Tensor, x: Tensor,
    up: Tensor | None, scale: Tensor | None, gate: str, dtype: dtype, scaling: str, along: str,
    mode: str, swizzle: str,
) -> None:  # fmt: skip
    if up is None:
        x, up = x.chunk(2, -1)
    result, inputs = (data, scales, column_data, column_scales), Inputs(gate, x, up=up)
    _forward("quantized_glu_forward", result, inputs, scale, scaling, mode, swizzle)


def quantized_gate_backward(
    data: Tensor, scales: Tensor, column_data: Tensor, column_scales: Tensor, dy: Tensor,
    x: Tensor, bias: Tensor | None, gate: str, dtype: dtype, along: str, mode: str, swizzle: str,
) -> None:  # fmt: skip
    result, inputs = (data, scales, column_data, column_scales), Inputs(gate, x, dy=dy, bias=bias)
    in_blocks("quantized_gate_backward", (result,), inputs, mode, swizzle)


def quantized_gate_backward_bias(
    data: Tensor, scales: Tensor, column_data: Tensor, column_scales: Tensor, dbias: Tensor,
    dy: Tensor, x: Tensor, bias: Tensor, gate: str, dtype: dtype, along: str, mode: str,
    swizzle: str,
) -> None:  # fmt: skip
    result, inputs = (data, scales, column_data, column_scales), Inputs(gate, x, dy=dy, bias=bias)
    in_blocks("quantized_gate_backward_bias", (result,), inputs, mode, swizzle, dbias=dbias)


def quantized_glu_backward(
    data: Tensor, scales: Tensor, column_data: Tensor, column_scales: Tensor, up_data: Tensor,
    up_scales: Tensor, up_column_data: Tensor, up_column_scales: Tensor, dy: Tensor, x: Tensor,
    up: Tensor, gate: str, dtype: dtype, along: str, mode: str, swizzle: str,
) -> None:  # fmt: skip
    dx = data, scales, column_data, column_scales
    dup = up_data, up_scales, up_column_data, up_column_scales
    inputs = Inputs(gate, x, up=up, dy=dy)
    in_blocks("quantized_glu_backward", (dx, dup), inputs, mode, swizzle)


def quantized_glu_halves_backward(
    data: Tensor, scales: Tensor, column_data: Tensor, column_scales: Tensor, dy: Tensor,
    x: Tensor, gate: str, dtype: dtype, along: str, mode: str, swizzle: str,
) -> None:  # fmt: skip
    result = data, scales, column_data, column_scales
    x, up = x.chunk(2, -1)
    inputs = Inputs(gate, x, up=up, dy=dy)
    in_blocks("quantized_glu_halves_backward", (result, result), inputs, mode, swizzle)
