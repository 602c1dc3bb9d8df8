"""The functions that a fused method calls in place of a pattern.

Each takes the module's current activation and linear layer. Inputs that our operators do not take,
such as a sparse factor or one that broadcasts, go to the original functions.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch._C import _get_function_stack_at, _len_torch_function_stack
from torch.compiler import is_dynamo_compiling

from gelu_kernels import functional
from gelu_kernels.operators.table import APPROXIMATE
from gelu_kernels.plain import is_plain_linear, is_plain_tensor
from gelu_kernels.replace.activations import gate_of, swish
from gelu_kernels.replace.kinds import is_conv1d, is_gate, is_gelu, is_linear_with_bias

__all__ = [
    "bias_gelu", "gate", "gate_linear", "glu", "glu_linear", "partial", "product", "swish",
    "weighted_glu",
]  # fmt: skip

_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def gate(activation: Callable, input: Tensor) -> Tensor:
    """``activation(input)`` of a module or a function."""
    name = _gate_of(activation)
    return functional.gate(input, gate=name) if name and is_taken(input) else activation(input)


def glu(
    activation: Callable,
    left: Tensor,
    right: Tensor,
    *,
    gate_is_left: bool = True,
    limit: float | None = None,
    up_offset: float = 0.0,
) -> Tensor:
    """``activation(left) * right``, or ``left * activation(right)``, with the factors clamped and
    shifted."""
    x, up = (left, right) if gate_is_left else (right, left)
    name = _unit_of(activation, x, up, limit, up_offset)
    if name:
        return functional.glu(x, up, gate=name, limit=limit, up_offset=up_offset)
    if limit is not None:
        x, up = x.clamp(max=limit), up.clamp(min=-limit, max=limit)
    up = up + up_offset if up_offset else up
    return gate(activation, x) * up if gate_is_left else up * gate(activation, x)


def weighted_glu(
    activation: Callable,
    left: object,
    right: object,
    *,
    unit_is_left: bool = True,
    gate_is_left: bool = True,
    limit: float | None = None,
    up_offset: float = 0.0,
) -> Tensor:
    """:func:`glu` of a pair of factors, times the other argument."""
    factors, weight = (left, right) if unit_is_left else (right, left)
    x, up = factors if gate_is_left else factors[::-1]
    options = {"limit": limit, "up_offset": up_offset}
    name = _unit_of(activation, x, up, limit, up_offset)
    if name and _is_of_rows(weight, x):
        return functional.glu(x, up, gate=name, weight=weight.squeeze(-1), **options)
    unit = glu(activation, *factors, gate_is_left=gate_is_left, **options)
    return unit * weight if unit_is_left else weight * unit


def _is_of_rows(weight: object, x: Tensor) -> bool:
    return (
        is_taken(weight)
        and x.dim() > 0
        and _is_kept(x, weight)
        and weight.shape == (*x.shape[:-1], 1)
        and (weight.dtype, weight.device) == (x.dtype, x.device)
    )


def glu_linear(
    activation: Callable,
    linear: torch.nn.Module,
    factors: tuple[Tensor, Tensor],
    *,
    gate_is_left: bool = True,
    limit: float | None = None,
    up_offset: float = 0.0,
) -> Tensor:
    """``linear`` of :func:`glu` of the factors."""
    x, up = factors if gate_is_left else factors[::-1]
    options = {"limit": limit, "up_offset": up_offset}
    name = _unit_of(activation, x, up, limit, up_offset)
    if name and is_plain_linear(linear) and _fits(x, linear.weight):
        return functional.glu_linear(x, up, linear.weight, linear.bias, gate=name, **options)
    return linear(glu(activation, *factors, gate_is_left=gate_is_left, **options))


def gate_linear(activation: Callable, linear: torch.nn.Module, input: Tensor) -> Tensor:
    """``linear(activation(input))``, for a ``Linear`` or a ``Conv1D``."""
    name = _gate_of(activation)
    if name and is_taken(input) and (is_plain_linear(linear) or is_conv1d(linear)):
        weight = linear.weight.t() if is_conv1d(linear) else linear.weight
        if _fits(input, weight):
            return functional.gate_linear(input, weight, linear.bias, gate=name)
    return linear(gate(activation, input))


def product(linear: torch.nn.Linear, input: Tensor) -> tuple[Tensor, Tensor | None]:
    """The linear layer's result without its bias, and the bias. If the operator does not take them,
    the full result and None."""
    parameters = linear.__dict__["_parameters"]  # nn.Module.__getattr__ is slow
    bias = parameters.get("bias")
    if not (is_linear_with_bias(linear) and is_taken(input) and is_taken(bias)):
        return linear(input), None
    return torch.nn.functional.linear(input, parameters["weight"]), bias


def bias_gelu(activation: Callable, parts: tuple[Tensor, Tensor | None]) -> Tensor:
    """``activation`` of the sum of the parts of :func:`product`."""
    input, bias = parts
    if bias is None:
        return gate(activation, input)
    approximate = APPROXIMATE[gate_of(activation)] if is_gelu(activation) else None
    if approximate and is_taken(input):
        own = getattr(activation, "__dict__", {})  # ours may save a code of the derivative
        save, dither = own.get("save"), own.get("dither", False)
        return functional.bias_gelu(input, bias, approximate=approximate, save=save, dither=dither)
    return activation(input + bias)


def _gate_of(activation: Callable) -> str | None:
    """None also for an activation that saves a code, which the operators below cannot."""
    return gate_of(activation) if is_gate(activation) else None


def _unit_of(
    activation: Callable, x: Tensor, up: Tensor, limit: float | None, up_offset: float
) -> str | None:
    same = (
        is_taken(x)
        and is_taken(up)
        and _is_kept(x, up)
        and ((limit is None and not up_offset) or _is_kept(up, x))
        and (x.shape, x.stride(), x.dtype) == (up.shape, up.stride(), up.dtype)
        and x.device == up.device
        and (limit is None or 0 < limit < float("inf"))
    )
    return _gate_of(activation) if same else None


def is_taken(input: object) -> bool:
    if not isinstance(input, Tensor) or input.dtype not in _DTYPES or _is_overridden():
        return False
    if torch.is_grad_enabled() and not is_dynamo_compiling() and input.is_inference():
        return False  # Autograd cannot save it; the original may save another tensor.
    if input.is_nested:
        return input.layout is torch.jagged
    return input.layout is torch.strided and is_plain_tensor(input)


def _is_overridden() -> bool:
    """Whether a ``TorchFunctionMode`` other than torch's own is active. It may intercept torch's
    functions, but not the calls inside ours."""
    count = _len_torch_function_stack()
    return count > 0 and any(
        not type(_get_function_stack_at(i)).__module__.startswith("torch.") for i in range(count)
    )


def _is_kept(input: Tensor, *others: Tensor) -> bool:
    """Whether the original also saves ``input`` for backward, if the others' gradients need it. A
    tensor that it does not save may be overwritten before backward."""
    is_recorded = torch.is_grad_enabled() and any(other.requires_grad for other in others)
    return input.requires_grad or not is_recorded


def _fits(input: Tensor, weight: Tensor) -> bool:
    return (
        _is_kept(input, weight)
        and input.dim() > 0
        and input.shape[-1] == weight.shape[1]
        and input.device == weight.device
        and (input.dtype == weight.dtype or torch.is_autocast_enabled(input.device.type))
    )
