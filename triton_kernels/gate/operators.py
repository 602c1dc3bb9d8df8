"""The core operators of a gate alone."""

import torch
from torch import Tensor

from gelu_kernels import _C
from gelu_kernels.triton_kernels import bias_gradient
from gelu_kernels.triton_kernels.elementwise import over_tiles
from gelu_kernels.triton_kernels.launch import Specialization, Type
from gelu_kernels.triton_kernels.matrices import TYPES, integer, pointer
from gelu_kernels.triton_kernels.tuning import VECTOR_BYTES

KERNEL = "gate.kernels.map_rows"


def map_rows(
    op: str,
    order: str,
    gate: str,
    out: Tensor,
    x: Tensor,
    bias: Tensor | None = None,
    factor: Tensor | None = None,
    other: Tensor | None = None,
) -> Tensor:
    """A function of the gate of x + bias, times the factors."""
    is_biased = bias is not None
    bias = bias.contiguous() if is_biased else None
    inputs = (other, factor, x)
    over_tiles(op, KERNEL, gate, (order,), (out,), inputs, x, bias, keep_columns=is_biased)
    return out


def gate_forward(x: Tensor, bias: Tensor | None, gate: str) -> Tensor:
    op = "gate_forward"
    _C.check_gate(op, x, bias, gate)
    return map_rows(op, "value", gate, torch.empty_like(x), x, bias)


def gate_backward(dy: Tensor, x: Tensor, bias: Tensor | None, gate: str) -> Tensor:
    op = "gate_backward"
    _C.check_gate(op, x, bias, gate, dy=dy)
    return map_rows(op, "derivative", gate, torch.empty_like(x), x, bias, dy)


def gate_double_backward(
    ddx: Tensor, dy: Tensor, x: Tensor, bias: Tensor | None, gate: str
) -> Tensor:
    op = "gate_double_backward"
    _C.check_gate(op, x, bias, gate, dy=dy, ddx=ddx)
    return map_rows(op, "second_derivative", gate, torch.empty_like(x), x, bias, dy, ddx)


def specialize_sums(key: bias_gradient.Key) -> Specialization:
    arguments: tuple[Type, ...] = (
        *[pointer(key.dtype, key.aligned)] * 4,
        pointer(bias_gradient.sum_type(key.dtype), aligned=True),
        "i64",
        integer(key.dtype, key.whole),
        "i64",
        *[integer(key.dtype, key.aligned)] * 3,
        *(1 if consecutive else "i64" for consecutive in key.consecutive),
    )
    compiled_in = key.columns, key.columns_first
    precision = TYPES[key.dtype]
    return Specialization(
        "gate.kernels.sum_columns", arguments, compiled_in, key.gate, ("derivative",), precision
    )


def gate_backward_bias(dy: Tensor, x: Tensor, bias: Tensor, gate: str) -> tuple[Tensor, Tensor]:
    op = "gate_backward_bias"
    _C.check_gate(op, x, bias, gate, dy=dy)
    unit = VECTOR_BYTES // x.itemsize
    return bias_gradient.sum_columns(op, specialize_sums, gate, (dy, x), bias.contiguous(), unit)
