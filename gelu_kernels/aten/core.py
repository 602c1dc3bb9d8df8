"""The core operators in ATen terms, each under its own name. 16-bit tensors are computed in float32
and rounded once, as in the kernels.
"""

import torch
from torch import Tensor

from gelu_kernels.aten.gates import GATES


def _wide(t: Tensor) -> Tensor:
    return t if t.dtype == torch.float64 else t.float()


def _sum(x: Tensor, bias: Tensor | None) -> Tensor:
    return _wide(x) if bias is None else _wide(x) + _wide(bias)


def _summed_like(t: Tensor, parameter: Tensor) -> Tensor:
    """Sums over the dimensions along which a number, or a vector of columns, is broadcast."""
    leading = list(range(t.dim() - parameter.dim()))
    return (t.sum(leading) if leading else t.clone()).to(parameter.dtype)


def gate_forward(x: Tensor, bias: Tensor | None, gate: str) -> Tensor:
    return GATES[gate].value(_sum(x, bias)).to(x.dtype)


def gate_backward(dy: Tensor, x: Tensor, bias: Tensor | None, gate: str) -> Tensor:
    return (_wide(dy) * GATES[gate].derivative(_sum(x, bias))).to(x.dtype)


def gate_backward_bias(dy: Tensor, x: Tensor, bias: Tensor, gate: str) -> tuple[Tensor, Tensor]:
    dx = _wide(dy) * GATES[gate].derivative(_sum(x, bias))
    return dx.to(x.dtype), _summed_like(dx, bias)


def gate_double_backward(
    ddx: Tensor, dy: Tensor, x: Tensor, bias: Tensor | None, gate: str
) -> Tensor:
    return (_wide(ddx) * _wide(dy) * GATES[gate].second_derivative(_sum(x, bias))).to(x.dtype)


def _operands(
    x: Tensor, up: Tensor, limit: float | None, up_offset: float
) -> tuple[Tensor, Tensor]:
    """The gate's argument and the other factor, clamped and shifted."""
    x, up = _wide(x), _wide(up)
    if limit is not None:
        x, up = x.clamp(max=limit), up.clamp(-limit, limit)
    return x, up + up_offset if up_offset else up


def _weighted(t: Tensor, weight: Tensor | None) -> Tensor:
    return t if weight is None else t * _wide(weight).unsqueeze(-1)


def glu_forward(
    x: Tensor,
    up: Tensor,
    weight: Tensor | None,
    gate: str,
    limit: float | None = None,
    up_offset: float = 0.0,
) -> Tensor:
    gated, factor = _operands(x, up, limit, up_offset)
    return _weighted(GATES[gate].value(gated) * factor, weight).to(x.dtype)


def glu_backward_weight(
    dy: Tensor,
    x: Tensor,
    up: Tensor,
    weight: Tensor | None,
    gate: str,
    limit: float | None = None,
    up_offset: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    gated, factor = _operands(x, up, limit, up_offset)
    value, product = GATES[gate].value(gated), _weighted(_wide(dy), weight)
    dx, dup = product * factor * GATES[gate].derivative(gated), product * value
    if limit is not None:  # at the limit itself the gradient passes
        dx, dup = dx.masked_fill(x > limit, 0), dup.masked_fill(up.abs() > limit, 0)
    dweight = (_wide(dy) * value * factor).sum(-1)
    return dx.to(x.dtype), dup.to(x.dtype), dweight.to(x.dtype)


def glu_backward(
    dy: Tensor, x: Tensor, up: Tensor, weight: Tensor | None, *options: object, **named: object
) -> tuple[Tensor, Tensor]:
    return glu_backward_weight(dy, x, up, weight, *options, **named)[:2]


def glu_halves_forward(x: Tensor, *options: object, **named: object) -> Tensor:
    return glu_forward(*x.chunk(2, -1), *options, **named)


def glu_halves_backward_weight(
    dy: Tensor, x: Tensor, *options: object, **named: object
) -> tuple[Tensor, Tensor]:
    *halves, dweight = glu_backward_weight(dy, *x.chunk(2, -1), *options, **named)
    return torch.cat(halves, -1), dweight


def glu_halves_backward(dy: Tensor, x: Tensor, *options: object, **named: object) -> Tensor:
    return glu_halves_backward_weight(dy, x, *options, **named)[0]


def _standardised(x: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    """(x - loc)/scale; 0 at x = loc, where scale may be 0."""
    difference = _wide(x) - _wide(loc)
    return (difference / _wide(scale)).masked_fill(difference == 0, 0)


def cdf_gate_forward(x: Tensor, loc: Tensor, scale: Tensor, gate: str) -> Tensor:
    z = _standardised(x, loc, scale)
    return (_wide(x) * GATES[gate].distribution(z)).to(x.dtype)


def cdf_gate_backward(
    dy: Tensor, x: Tensor, loc: Tensor, scale: Tensor, gate: str
) -> tuple[Tensor, Tensor, Tensor]:
    z, is_step = _standardised(x, loc, scale), scale == 0
    # x f(z)/scale; F is flat on both sides of a step.
    slope = (_wide(x) * GATES[gate].density(z) / _wide(scale)).masked_fill(is_step, 0)
    dx = _wide(dy) * (GATES[gate].distribution(z) + slope)
    dloc = _wide(dy) * -slope
    dscale = dloc * z.masked_fill(is_step, 0)
    return dx.to(x.dtype), _summed_like(dloc, loc), _summed_like(dscale, scale)
