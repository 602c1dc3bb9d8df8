"""The SOI map, with or without a bias that is added first."""

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.overrides import has_torch_function_variadic

from gelu_kernels import _C
from gelu_kernels.functional.cdf import parameter


def soi_map(
    input: Tensor,
    *,
    gate: str = "normal",
    loc: Tensor | float | None = None,
    scale: Tensor | float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Stochastic SOI map of the GELU paper: ``x`` with probability ``F(x)``, else 0.

    The result is :math:`x \, m` with :math:`m \sim \operatorname{Bernoulli}(F(x))`. Its mean is the
    gate :math:`x \, F(x)`. With ``loc`` or ``scale``,
    :math:`m \sim \operatorname{Bernoulli}(F((x - loc) / scale))`, and the mean is :func:`cdf_gate`.

    The gradient of ``input`` is the gradient of the result where m is 1, and 0 elsewhere. Only m,
    one bit per element, is saved for backward. As in ``torch.bernoulli``, no gradient goes through
    m: the gradients of ``loc`` and ``scale`` are zeros.

    Args:
        input: a tensor of any shape and strides, float64, float32, float16 or bfloat16.
        gate: the name of the gate, which selects the distribution function F, as for
            :func:`gelu_kernels.functional.gate`.
        loc, scale: a location and a scale of F, as for :func:`cdf_gate`. If only one is given,
            ``loc`` defaults to 0 and ``scale`` to 1.
        generator: the generator that draws the seed, on the device of ``input``. None means the
            default generator of that device.

    Returns:
        A tensor of the same shape, dtype and (where ``input`` is dense) strides.

    Raises:
        TypeError: ``input`` has another dtype, or is neither strided nor jagged; ``loc`` or
            ``scale`` has another dtype than ``input``.
        ValueError: ``gate`` is unknown; ``generator`` is on another device; ``loc`` or ``scale``
            has another shape or device; ``scale`` is negative or NaN, which is checked where
            :func:`cdf_gate` checks it.

    Accuracy: the probability of m = 1 is within 2e-6 of F(x), with a relative error below 2e-5 for
    -4 < x < 0; it is 0 where F(x) is under 2^-32 (for :math:`\Phi`, x < -6.23). A kept element is
    exact, infinity included; a dropped one is 0. -inf is always dropped, NaN always kept. With
    ``loc`` and ``scale`` the same holds for F(z) with z = (x - loc)/scale computed in float32: the
    difference, the inverse of scale and their product are each rounded once.

    Random numbers: a call draws one 63-bit seed from the generator. An element's m depends only on
    the seed, on its index in row-major order and on its value: it is the same on every device, for
    any number of threads and for any strides. docs/guide/random.md says how. ``torch.compile``
    draws the same seeds as eager mode; a ``generator`` breaks the graph.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), sections 2 and 4; Salmon et
    al., "Parallel Random Numbers: As Easy as 1, 2, 3" (2011).

    >>> from gelu_kernels.functional import gelu
    >>> x = torch.tensor([-10.0, 0.5, 10.0])
    >>> soi_map(x)[::2]
    tensor([ 0., 10.])
    >>> float(soi_map(x[1].expand(100_000)).mean()), float(gelu(x[1]))  # doctest: +ELLIPSIS
    (0.34..., 0.345731...)
    >>> soi_map(x, loc=0.5, scale=0.0)[::2]
    tensor([ 0., 10.])
    """
    if loc is not None:
        loc = parameter("soi_map", "loc", loc, input)
    if scale is not None:
        scale = parameter("soi_map", "scale", scale, input)
    if is_dynamo_compiling() or has_torch_function_variadic(input, loc, scale):
        return torch.ops.gelu_kernels.soi_map(
            input, gate=gate, loc=loc, scale=scale, generator=generator
        )
    return _C.soi_map(input, gate, loc, scale, generator)


def bias_soi_map(
    input: Tensor,
    bias: Tensor,
    *,
    gate: str = "normal",
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Fused bias add and SOI map, ``soi_map(input + bias)``: one pass forward, one pass backward.

    Args:
        input: a tensor of at least one dimension, float64, float32, float16 or bfloat16.
        bias: as for :func:`bias_gelu`.
        gate, generator: as for :func:`soi_map`.

    Returns:
        A tensor of the shape, dtype and (where ``input`` is dense) strides of ``input``.

    Raises:
        TypeError: a dtype or layout is not as above.
        ValueError: a shape, a device or ``gate`` is not as above.

    Accuracy: as :func:`soi_map`, of the sum computed in float32 (float64 for float64); a kept sum
    is rounded once. The gradient of ``bias`` is summed as in :func:`bias_gelu`.

    Random numbers: as for :func:`soi_map`.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), sections 2 and 4.

    >>> bias_soi_map(torch.zeros(2, 2), torch.tensor([9.0, -9.0]))
    tensor([[9., 0.],
            [9., 0.]])
    """
    if is_dynamo_compiling() or has_torch_function_variadic(input, bias):
        return torch.ops.gelu_kernels.fused_bias_soi_map(
            input, bias, gate=gate, generator=generator
        )
    return _C.fused_bias_soi_map(input, bias, gate, generator)
