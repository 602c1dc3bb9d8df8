"""Linear layers after a gate or a gated linear unit, which backward recomputes."""

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.nn.functional import linear
from torch.overrides import has_torch_function_variadic

from gelu_kernels import _C
from gelu_kernels.functional.gate import gate as gate_of
from gelu_kernels.functional.glu import glu
from gelu_kernels.plain import is_plain_tensor


def _needs_own_linear(t: Tensor | None) -> bool:
    """Whether torch's linear layer must take it. A wrong type is refused by the operator."""
    return isinstance(t, (Tensor, torch.fx.Proxy)) and not is_plain_tensor(t)


def gate_linear(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    gate_bias: Tensor | None = None,
    gate: str = "normal",
) -> Tensor:
    r"""``linear(gate(input + gate_bias), weight, bias)``, saving half as much for backward.

    .. math:: y = g(x + b_g) \, W^T + b

    Only ``input`` is saved; backward recomputes :math:`g(x + b_g)` for the gradient of ``weight``.
    The separate functions save both tensors. Their results and gradients have the same bits.

    Args:
        input: the hidden layer before its activation, ``(*, hidden)``: a tensor of at least one
            dimension, float64, float32, float16 or bfloat16.
        weight: ``(features, hidden)``, of the same dtype and device.
        bias: a vector of length ``features``, of the same dtype and device.
        gate_bias: the bias of the hidden layer, a vector of length ``hidden``, of the same dtype
            and device. Its gradient is computed in the same pass as the gradient of ``input``.
        gate: the name of the gate, as for :func:`gelu_kernels.functional.gate`.

        Under autocast ``weight`` and ``bias`` are cast as ``torch.nn.functional.linear`` casts
        them, and ``gate_bias`` to the dtype of ``input``.

    Returns:
        A tensor of shape ``(*, features)``, as ``torch.nn.functional.linear`` returns it.

    Raises:
        TypeError: a dtype or layout is not as above.
        ValueError: a shape, a device or ``gate`` is not as above.

    Accuracy: the gate as :func:`gelu_kernels.functional.gate`; the matrix products are torch's.

    Memory: the separate functions run, and save both tensors, under ``torch.vmap``, in forward-mode
    AD, for jagged tensors, and if ``weight`` or ``bias`` is of a tensor subclass other than
    DTensor, such as a quantised weight. docs/guide/memory.md has the figures.

    Source: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models"
    (2022), section 5; Karpathy, llm.c, pull request 420.

    >>> x, weight = torch.tensor([[-1.0, 0.0, 1.0]]), torch.tensor([[1.0, 1.0, 2.0]])
    >>> gate_linear(x, weight)
    tensor([[1.5240]])
    """
    if _needs_own_linear(weight) or _needs_own_linear(bias):
        return linear(gate_of(input, gate_bias, gate=gate), weight, bias)
    if is_dynamo_compiling() or has_torch_function_variadic(input, weight, bias, gate_bias):
        return torch.ops.gelu_kernels.gate_linear(
            input, weight, bias, gate_bias=gate_bias, gate=gate
        )
    return _C.gate_linear(input, weight, bias, gate_bias, gate)


def glu_linear(
    input: Tensor,
    up: Tensor | None,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    gate: str = "normal",
    limit: float | None = None,
    up_offset: float = 0.0,
) -> Tensor:
    r"""``linear(glu(input, up), weight, bias)``, saving two thirds as much for backward.

    .. math:: y = (g(x) \odot \text{up}) \, W^T + b

    Only ``input`` and ``up`` are saved; backward recomputes the gated linear unit, as for
    :func:`gate_linear`.

    Args:
        input, up, gate, limit, up_offset: as for :func:`gelu_kernels.functional.glu`, with at least
            one dimension. ``up=None`` takes the halves of ``input``.
        weight: ``(features, hidden)``, where ``glu(input, up)`` is ``(*, hidden)``, of the same
            dtype and device.
        bias: a vector of length ``features``, of the same dtype and device.

    Returns:
        A tensor of shape ``(*, features)``, as ``torch.nn.functional.linear`` returns it.

    Raises:
        TypeError: a dtype or layout is not as above.
        ValueError: a shape, a device, ``gate``, ``limit`` or ``up_offset`` is not as above.

    Accuracy: as :func:`gelu_kernels.functional.glu` and torch's matrix products.

    Memory: as :func:`gate_linear`.

    Source: as :func:`gate_linear`; Shazeer, "GLU Variants Improve Transformer" (2020), section 2.

    >>> x, weight = torch.tensor([[-1.0, 0.0, 1.0]]), torch.tensor([[1.0, 1.0, 2.0]])
    >>> glu_linear(x, x, weight, gate="silu")
    tensor([[1.7311]])
    """
    if _needs_own_linear(weight) or _needs_own_linear(bias):
        hidden = glu(input, up, gate=gate, limit=limit, up_offset=up_offset)
        return linear(hidden, weight, bias)
    if is_dynamo_compiling() or has_torch_function_variadic(input, up, weight, bias):
        return torch.ops.gelu_kernels.glu_linear(
            input, up, weight, bias, gate=gate, limit=limit, up_offset=up_offset
        )
    return _C.glu_linear(input, up, weight, bias, gate, limit, up_offset)
