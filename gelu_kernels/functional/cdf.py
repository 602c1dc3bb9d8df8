"""Gates with a location and a scale."""

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.overrides import has_torch_function_unary, has_torch_function_variadic

from gelu_kernels import _C
from gelu_kernels.functional.arguments import number

_NUMBERS = (int, float, torch.SymInt, torch.SymFloat)


def parameter(function: str, name: str, value: Tensor | float, input: Tensor) -> Tensor:
    """A location or scale as a tensor like ``input``."""
    if isinstance(value, (Tensor, torch.fx.Proxy)):
        return value
    if not isinstance(value, _NUMBERS):
        value = number(function, name, value)
    if name == "scale" and not value >= 0:
        raise ValueError(f"{function}(): scale must be at least 0, got {value}")
    is_traced = isinstance(input, torch.fx.Proxy)
    if is_traced or (has_torch_function_unary(input) and not input.is_nested):
        return input.new_full((), value)  # of the same subclass
    if not isinstance(input, Tensor):
        return value  # the operator refuses the input
    return torch.full((), value, dtype=input.dtype, device=input.device)


def cdf_gate(
    input: Tensor, loc: Tensor | float, scale: Tensor | float, *, gate: str = "normal"
) -> Tensor:
    r"""Gate with a location and a scale, ``x F((x - loc) / scale)``, in one pass.

    Backward computes the gradients of ``input``, ``loc`` and ``scale`` in one pass.

    Args:
        input: a tensor of any shape and strides, float64, float32, float16 or bfloat16.
        loc: a number (also NumPy's, or a ``Fraction``), a 0-d tensor, or a vector as long as the
            last dimension of ``input``. A number is rounded to the dtype of ``input``. A tensor has
            that dtype, or is cast to it under autocast, and is on the same device.
        scale: the same, at least 0. A scale of 0 makes F a step, with F = 1/2 at x = loc; the
            gradients of ``loc`` and ``scale`` are then 0.
        gate: the name of the gate, which selects the distribution function F, as for
            :func:`gelu_kernels.functional.gate`.

    Returns:
        A tensor of the shape, dtype and (where ``input`` is dense) strides of ``input``.

    Raises:
        TypeError: a dtype or layout is not as above.
        ValueError: a shape, a device or ``gate`` is not as above, or ``scale`` is negative or NaN.
            A tensor ``scale`` is checked only on the CPU. On a GPU a check would have to wait for
            the device; there the result is undefined.

    Accuracy: float32 and float64 within 6 units in the last place where F is a normal number.
    float16 and bfloat16 are computed in float32 and rounded once. The gradients of ``loc`` and
    ``scale`` are summed in float32 (float64) in an order that depends only on the shapes: the same
    bits for any number of threads.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), section 2.

    >>> x = torch.tensor([-1.0, 0.0, 1.0])
    >>> cdf_gate(x, 0.0, 1.0)
    tensor([-0.1587,  0.0000,  0.8413])
    >>> cdf_gate(x, torch.tensor([-1.0, 0.0, 2.0]), 0.0)
    tensor([-0.5000,  0.0000,  0.0000])
    """
    loc = parameter("cdf_gate", "loc", loc, input)
    scale = parameter("cdf_gate", "scale", scale, input)
    if is_dynamo_compiling() or has_torch_function_variadic(input, loc, scale):
        return torch.ops.gelu_kernels.cdf_gate(input, loc, scale, gate=gate)
    return _C.cdf_gate(input, loc, scale, gate)
