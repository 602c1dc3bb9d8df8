"""Gradients of gates and gated linear units in FP8 and MXFP8, for the products of backward."""

from collections.abc import Sequence
from enum import Enum

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.overrides import has_torch_function_variadic

from gelu_kernels import _C
from gelu_kernels.functional.arguments import gate_name
from gelu_kernels.functional.quantized import Results, mode_or_default, name_of, pairs


def _call(op: str, *arguments: object) -> Sequence[Tensor]:
    """Calls an operator by the quickest route."""
    needs_dispatch = is_dynamo_compiling() or has_torch_function_variadic(*arguments)
    return getattr(torch.ops.gelu_kernels if needs_dispatch else _C, op)(*arguments)


def _recipe(
    dtype: torch.dtype,
    scaling: str | Enum,
    along: str,
    mode: str | None,
    swizzle: str | Enum,
    packed: bool,
) -> tuple[object, ...]:
    """The last arguments of every operator."""
    scaling = name_of(scaling)
    return dtype, scaling, along, mode_or_default(mode, scaling), name_of(swizzle), packed


def quantized_gate_backward(
    grad: Tensor,
    input: Tensor,
    bias: Tensor | None = None,
    *,
    gate: str = "normal",
    dtype: torch.dtype = torch.float8_e4m3fn,
    scaling: str | Enum = "BlockWise1x32",
    along: str = "row",
    mode: str | None = None,
    swizzle: str | Enum = "NO_SWIZZLE",
    packed: bool = False,
    offsets: Tensor | None = None,
) -> Results:
    r"""Gradient of ``gate`` in FP8 or MXFP8, for the matrix products of a backward pass.

    dx = grad g'(input + bias) is rounded to the dtype of ``input`` and then quantised as by
    :func:`quantized_gate`. With a bias, its gradient is computed too: in the same pass, or for
    ``"RowWise"`` and with ``offsets`` in a pass before, which also writes dx.

    Args:
        grad: the gradient of y, of the shape and dtype of ``input``.
        input, bias, gate: as for :func:`quantized_gate`.
        dtype, scaling, along, mode, swizzle, packed, offsets: as for :func:`quantized_gate`, except
            that there is no ``"TensorWise"``.

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
    options = offsets, gate, *_recipe(dtype, scaling, along, mode, swizzle, packed)
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
    limit: float | None = None,
    up_offset: float = 0.0,
    weight: Tensor | None = None,
    dtype: torch.dtype = torch.float8_e4m3fn,
    scaling: str | Enum = "BlockWise1x32",
    along: str = "row",
    mode: str | None = None,
    swizzle: str | Enum = "NO_SWIZZLE",
    packed: bool = False,
    offsets: Tensor | None = None,
) -> Results:
    r"""Gradients of ``glu`` in FP8 or MXFP8, for the matrix products of a backward pass.

    The gradients of ``input`` and ``up``, dx and dup, are quantised as in
    :func:`quantized_gate_backward`. With a weight, its gradient, dweight, is computed in a pass
    before, which also writes dx and dup.

    Args:
        grad: the gradient of y, of its shape and dtype.
        input, up, gate, limit, up_offset, weight: as for :func:`quantized_glu`.
        dtype, scaling, along, mode, swizzle, packed, offsets: as for
            :func:`quantized_gate_backward`.

    Returns:
        With ``up``, dx and dup, each as :func:`quantized_gate` returns y. Without it, one matrix
        whose halves are dx and dup, for the weight that produced both halves of ``input``;
        ``"RowWise"`` has one scale for such a row. With ``weight``, a tuple of these and dweight,
        in the dtype of ``weight``, with the same bits as from autograd.

    Raises:
        TypeError, ValueError, NotImplementedError: as :func:`quantized_gate_backward` and
            :func:`glu`.

    Accuracy, source: as :func:`quantized_glu`.

    >>> dx, dup = quantized_glu_backward(*[torch.ones(1, 32)] * 3, gate="normal")
    >>> (dup.data.float() * dup.scale.float())[0, :2]
    tensor([0.8125, 0.8125])
    """
    gate = gate_name("quantized_glu_backward", gate)
    numbers = gate, limit, up_offset
    recipe = _recipe(dtype, scaling, along, mode, swizzle, packed)
    op = "quantized_glu_backward" if up is not None else "quantized_glu_halves_backward"
    tensors = (grad, input, weight) if up is None else (grad, input, up, weight)
    suffix = "" if weight is None else "_weight"
    results = _call(op + suffix, *tensors, offsets, *numbers, *recipe)
    gradients = [pairs(results[i : i + 4], along) for i in range(0, len(results) - 3, 4)]
    if weight is not None:
        gradients.append(results[-1])
    return tuple(gradients) if len(gradients) > 1 else gradients[0]
