"""Gated linear units."""

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.overrides import has_torch_function_variadic

from gelu_kernels import _C
from gelu_kernels.functional.arguments import gate_for


def geglu(input: Tensor, up: Tensor | None = None, *, approximate: str = "none") -> Tensor:
    r"""GELU-gated linear unit, ``gelu(input) * up``: one pass forward, one pass backward.

    Without ``up`` it computes ``geglu(*input.chunk(2, -1))``: the gate takes the first half of the
    last dimension, as in a ``gate_up_proj`` and in vLLM's ``GeluAndMul``. Backward then writes both
    halves of one gradient. ``torch.nn.functional.glu`` and the GEGLU of diffusers gate with the
    second half.

    Args:
        input: a tensor of any shape and strides, float64, float32, float16 or bfloat16; without
            ``up`` its last dimension is even. Halves, as ``chunk(2, -1)`` makes them, are read
            without a copy.
        up: a tensor of the same shape, dtype and device. Under autocast it is cast to the dtype of
            ``input``; nothing is broadcast.
        approximate: as for :func:`gelu`.

    Returns:
        A tensor of the shape, dtype and (where ``input`` is dense) strides of ``input``; without
        ``up``, a contiguous one whose last dimension is half as long.

    Raises:
        TypeError: a dtype or layout is not as above.
        ValueError: a shape, a device or ``approximate`` is not as above.

    Accuracy: the gate has the value and the derivative of :func:`gelu` before they are rounded, and
    the products are computed in float32 (float64 for float64): a 16-bit result is rounded once.
    float16 and bfloat16 are within 0.6 units in the last place, and float32 and float64 have a
    relative error below 4.5 eps (5 eps for the gradient of ``input``), where ``gelu(input)``, or
    its derivative, is a normal number. Elsewhere they are no worse than with ``gelu(input)``
    rounded in between.

    Source: Shazeer, "GLU Variants Improve Transformer" (2020), section 2.

    >>> x, up = torch.tensor([-1.0, 0.0, 1.0]), torch.tensor([2.0, 2.0, 2.0])
    >>> geglu(x, up)
    tensor([-0.3173,  0.0000,  1.6827])
    >>> geglu(torch.cat([x, up]))
    tensor([-0.3173,  0.0000,  1.6827])
    """
    gate = gate_for("geglu", approximate)
    if is_dynamo_compiling() or has_torch_function_variadic(input, up):
        return torch.ops.gelu_kernels.fused_glu(input, up, gate=gate)
    return _C.fused_glu(input, up, gate, None, 0.0, None)


def swiglu(input: Tensor, up: Tensor | None = None) -> Tensor:
    r"""SiLU-gated linear unit, ``silu(input) * up``: one pass forward, one pass backward.

    Args:
        input, up: as for :func:`geglu`. Without ``up``, the halves of ``input``, in that order, as
            in vLLM's ``SiluAndMul``.

    Returns:
        A tensor, as :func:`geglu` returns it.

    Raises:
        TypeError: a dtype or layout is not as for :func:`geglu`.
        ValueError: a shape or a device is not as for :func:`geglu`.

    Accuracy: as :func:`geglu`, where ``silu(input)``, or its derivative, is a normal number.

    Source: Shazeer, "GLU Variants Improve Transformer" (2020), section 2.

    >>> x, up = torch.tensor([-1.0, 0.0, 1.0]), torch.tensor([2.0, 2.0, 2.0])
    >>> swiglu(x, up)
    tensor([-0.5379,  0.0000,  1.4621])
    >>> swiglu(torch.cat([x, up]))
    tensor([-0.5379,  0.0000,  1.4621])
    """
    if is_dynamo_compiling() or has_torch_function_variadic(input, up):
        return torch.ops.gelu_kernels.fused_glu(input, up, gate="logistic")
    return _C.fused_glu(input, up, "logistic", None, 0.0, None)


def glu(
    input: Tensor,
    up: Tensor | None = None,
    *,
    gate: str,
    limit: float | None = None,
    up_offset: float = 0.0,
    weight: Tensor | None = None,
) -> Tensor:
    r"""Gated linear unit with any gate, ``gate(input) * up``: one pass forward, one pass backward.

    With a ``limit`` l, an ``up_offset`` and a ``weight`` w, for a gate :math:`g(x) = x F(x)`:

    .. math:: y = g(\min(x, l)) \, (\max(-l, \min(\text{up}, l)) + \text{offset}) \, w

    gpt-oss uses the gate ``"logistic_1702"``, ``limit=7.0`` and ``up_offset=1.0``. In a mixture of
    experts, ``weight`` holds the router's weight for each token.

    Args:
        input: a tensor of any shape and strides, float64, float32, float16 or bfloat16; without
            ``up`` its last dimension is even, and x and up are its halves, as for :func:`geglu`.
        up: a tensor of the same shape, dtype and device. Under autocast it is cast to the dtype of
            ``input``; nothing is broadcast.
        gate: the name of the gate, as for :func:`gate`.
        limit: a positive number. Gradients pass where x is at most ``limit``, and where up is from
            ``-limit`` to ``limit``, as for ``torch.clamp`` up to torch 2.13 (2.15 stops them at the
            limits). A NaN stays NaN.
        up_offset: a finite number.
        weight: one number per row: a tensor of the shape of ``input`` without its last dimension,
            of the same dtype and device. Under autocast it is cast to the dtype of ``input``.

    Returns:
        A tensor of the shape, dtype and (where ``input`` is dense) strides of ``input``; without
        ``up``, a contiguous one whose last dimension is half as long.

    Raises:
        TypeError: a dtype or layout is not as above.
        ValueError: a shape, a device, ``gate``, ``limit`` or ``up_offset`` is not as above.

    Accuracy: as :func:`geglu`. With a limit, an offset or a weight, which are applied in float32
    (float64 for float64), float16 and bfloat16 are within 0.65 units in the last place, and float32
    and float64 have a relative error below 6 eps. The gradient of ``weight`` is summed over the row
    in float32 (float64) in an order that depends only on the shape: the same bits for any number of
    threads and on every device.

    Source: Shazeer, "GLU Variants Improve Transformer" (2020), section 2; OpenAI, "gpt-oss-120b &
    gpt-oss-20b Model Card" (2025), section 2.

    >>> x, up = torch.tensor([[0.0, 1.0, 9.0]]), torch.tensor([[1.0, -9.0, 1.0]])
    >>> glu(x, up, gate="logistic_1702", limit=7.0, up_offset=1.0)
    tensor([[ 0.0000, -5.0748, 13.9999]])
    >>> glu(x, up, gate="normal", weight=torch.tensor([0.5]))
    tensor([[ 0.0000, -3.7861,  4.5000]])
    """
    if is_dynamo_compiling() or has_torch_function_variadic(input, up, weight):
        return torch.ops.gelu_kernels.fused_glu(
            input, up, gate=gate, limit=limit, up_offset=up_offset, weight=weight
        )
    return _C.fused_glu(input, up, gate, limit, up_offset, weight)
