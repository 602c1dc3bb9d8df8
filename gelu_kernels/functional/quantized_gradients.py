"""Gradients of gates and gated linear units in MXFP8, for the matrix products of backward."""

from collections.abc import Sequence
from enum import Enum

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.overrides import has_torch_function_variadic

from gelu_kernels import _C
from gelu_kernels.functional.arguments import gate_name
from gelu_kernels.functional.quantized import Results, name_of, pairs


def _call(op: str, *arguments: object) -> Sequence[Tensor]:
    """Calls an operator by the quickest route."""
    needs_dispatch = is_dynamo_compiling() or has_torch_function_variadic(*arguments)
    return getattr(torch.ops.gelu_kernels if needs_dispatch else _C, op)(*arguments)


def quantized_gate_backward(
    grad: Tensor,
    input: Tensor,
    bias: Tensor | None = None,
    *,
    gate: str = "normal",
    dtype: torch.dtype = torch.float8_e4m3fn,
    along: str = "row",
    mode: str = "floor",
    swizzle: str | Enum = "NO_SWIZZLE",
) -> Results:
    r"""Gradient of ``gate`` in MXFP8, for the matrix products of a backward pass.

    dx = grad g'(input + bias) is rounded to the dtype of ``input`` and then quantised as by
    :func:`quantized_gate` with ``"BlockWise1x32"``. With a bias, the same pass computes its
    gradient.

    Args:
        grad: the gradient of y, of the shape and dtype of ``input``.
        input, bias, gate, dtype, along, mode, swizzle: as for :func:`quantized_gate`.

    Returns:
        dx as :func:`quantized_gate` returns y. With ``bias`` a pair: dx, and the gradient of
        ``bias`` in its dtype, with the same bits as from autograd.

    Raises:
        TypeError, ValueError: as :func:`quantized_gate`.
        NotImplementedError: an argument requires a gradient: this has no derivative.

    Accuracy, source: as :func:`quantized_gate` and :func:`bias_gelu`.

    >>> dx = quantized_gate_backward(torch.ones(1, 32), torch.zeros(1, 32))
    >>> dx.data.float()[0, :2], dx.scale.float()
    (tensor([256., 256.]), tensor([[0.0020]]))
    """
    gate = gate_name("quantized_gate_backward", gate)
    options = gate, dtype, along, mode, name_of(swizzle)
    if bias is None:
        results = _call("quantized_gate_backward", grad, input, bias, *options)
        return pairs(results, along)
    *dx, dbias = _call("quantized_gate_backward_bias", grad, input, bias, *options)
    return pairs(dx, along), dbias


def quantized_glu_backward(
    grad: Tensor,
    input: Tensor,
    up: Tensor | None = None,
    *,
    gate: str,
    dtype: torch.dtype = torch.float8_e4m3fn,
    along: str = "row",
    mode: str = "floor",
    swizzle: str | Enum = "NO_SWIZZLE",
) -> Results:
    r"""Gradients of ``glu`` in MXFP8, for the matrix products of a backward pass.

    dx = grad up g'(input) and dup = grad g(input) are quantised as in
    :func:`quantized_gate_backward`.

    Args:
        grad: the gradient of y, of its shape and dtype.
        input, up, gate: as for :func:`quantized_glu`.
        dtype, along, mode, swizzle: as for :func:`quantized_gate`.

    Returns:
        With ``up`` a pair, dx and dup. Without it one matrix whose halves are dx and dup, for the
        weight that produced both halves of ``input``.

    Raises:
        TypeError, ValueError, NotImplementedError: as :func:`quantized_gate_backward`.

    Accuracy, source: as :func:`quantized_glu`.

    >>> dx, dup = quantized_glu_backward(*[torch.ones(1, 32)] * 3, gate="normal")
    >>> (dup.data.float() * dup.scale.float())[0, :2]
    tensor([0.8125, 0.8125])
    """
    gate = gate_name("quantized_glu_backward", gate)
    options = gate, dtype, along, mode, name_of(swizzle)
    if up is None:
        results = _call("quantized_glu_halves_backward", grad, input, *options)
        return pairs(results, along)
    results = _call("quantized_glu_backward", grad, input, up, *options)
    return pairs(results[:4], along), pairs(results[4:], along)
