"""Gates and gated linear units fused with dropout of the result."""

from numbers import Real

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.overrides import has_torch_function_variadic

from gelu_kernels import _C

P = 0.5  # the default of torch.nn.functional.dropout


def _operand_and_p(
    function: str, operand: Tensor | float | None, p: float
) -> tuple[Tensor | None, float]:
    """Lets ``f(x, operand, p)`` be called as ``f(x, p)``, like ``torch.nn.functional.dropout``."""
    if operand is None or isinstance(operand, Tensor):
        return operand, p
    if not isinstance(operand, (Real, torch.SymInt, torch.SymFloat)):
        return operand, p  # a torch.fx Proxy, or a wrong type, which the operator reports
    if p != P:
        raise TypeError(f"{function}() got multiple values for argument 'p'")
    return None, operand


def bias_gelu_dropout(
    input: Tensor,
    bias: Tensor,
    p: float = P,
    *,
    training: bool = True,
    approximate: str = "none",
    save: str | None = None,
    dither: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Fused bias add, GELU and dropout: ``dropout(gelu(input + bias), p, training)``.

    One pass forward; one pass backward for both gradients.

    Args:
        input: a tensor of at least one dimension, float64, float32, float16 or bfloat16.
        bias: as for :func:`bias_gelu`.
        p, training: as for ``torch.nn.functional.dropout``: the probability of dropping an element,
            and whether to drop any.
        approximate: as for :func:`gelu`.
        save, dither, generator: as for :func:`gate_dropout`.

    Returns:
        A tensor of the shape, dtype and (where ``input`` is dense) strides of ``input``.

    Raises:
        TypeError: a dtype or layout is not as above.
        ValueError: a shape, a device, ``approximate``, ``save`` or ``dither`` is not as above;
            ``p`` is not from 0 to 1.

    Accuracy and random numbers: as for :func:`gate_dropout`. The gradient of ``bias`` is summed as
    in :func:`bias_gelu`.

    Source: Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting"
    (2014), section 10; Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), section 2.

    >>> x, bias = torch.zeros(2, 2), torch.tensor([1.0, -1.0])
    >>> bias_gelu_dropout(x, bias, 0.25, generator=torch.Generator().manual_seed(0))
    tensor([[ 0.0000,  0.0000],
            [ 1.1218, -0.2115]])
    >>> bias_gelu_dropout(x, bias, 0.25, training=False)
    tensor([[ 0.8413, -0.1587],
            [ 0.8413, -0.1587]])
    """
    if is_dynamo_compiling() or has_torch_function_variadic(input, bias):
        return torch.ops.gelu_kernels.fused_bias_gelu_dropout(
            input,
            bias,
            p,
            training=training,
            approximate=approximate,
            save=save,
            dither=dither,
            generator=generator,
        )
    return _C.fused_bias_gelu_dropout(
        input, bias, p, training, approximate, save, dither, generator
    )


def gate_dropout(
    input: Tensor,
    bias: Tensor | float | None = None,
    p: float = P,
    *,
    gate: str = "normal",
    training: bool = True,
    save: str | None = None,
    dither: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Fused gate and dropout, ``dropout(gate(input), p, training)``, with an optional bias add.

    .. math:: y = m \, g(x) / (1 - p), \quad m \sim \operatorname{Bernoulli}(1 - p)

    Here g is the gate, and x is ``input`` or ``input + bias``. The gradient is the gradient of the
    gate divided by 1 - p where m is 1, and 0 elsewhere. ``input``, ``bias`` and m, one bit per
    element, are saved for backward.

    Args:
        input: as for :func:`gelu`; with ``bias``, as for :func:`bias_gelu`.
        bias: as for :func:`bias_gelu`. May be omitted: ``gate_dropout(input, p)``.
        p, training: as for ``torch.nn.functional.dropout``: the probability of dropping an element,
            and whether to drop any. Without training or with p = 0 this is :func:`gate`, and no
            mask is drawn. With p = 1 the result and its gradients are zeros.
        gate: as for :func:`gate`.
        save, dither: as for :func:`gelu`. The code is saved instead of ``input``, ``bias`` and m; a
            dropped element has the code of 0. Dithering takes its bits from the seed of m.
        generator: the generator that draws the seed, on the device of ``input``. None means the
            default generator of that device.

    Returns:
        A tensor of the shape, dtype and (where ``input`` is dense) strides of ``input``.

    Raises:
        TypeError: a dtype or layout is not as above.
        ValueError: a shape, a device, ``gate``, ``save`` or ``dither`` is not as above; ``p`` is
            not from 0 to 1.

    Accuracy: a kept element is g(x) times 1/(1 - p), both computed in float32 (float64 for
    float64), and is rounded once. Where the gate, or its derivative, is a normal number, float16
    and bfloat16 are within 0.57 units in the last place, the gradient of ``input`` within 0.68, and
    float32 and float64 have a relative error below 5 eps, that gradient below 5.5 eps. Elsewhere
    they are no worse than with ``gate(input)`` rounded in between. A dropped element is +0, even if
    x is infinite or NaN; ``torch.nn.functional.dropout`` multiplies by 0 and gives NaN.

    Random numbers: a call draws one 63-bit seed from the generator. The seed and an element's index
    in row-major order give 32 random bits; the element is dropped if they are below p 2^32,
    rounded. The mask is the same on every device, for any number of threads and for any strides;
    docs/guide/random.md says how. ``torch.compile`` draws the same seeds as eager mode; a
    ``generator`` breaks the graph.

    Source: Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting"
    (2014), section 10; Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (2011).

    >>> x = torch.ones(6)
    >>> gate_dropout(x, 0.5, gate="silu", generator=torch.Generator().manual_seed(0))
    tensor([0.0000, 0.0000, 1.4621, 0.0000, 0.0000, 1.4621])
    >>> gate_dropout(x, p=0.5, gate="silu", training=False)
    tensor([0.7311, 0.7311, 0.7311, 0.7311, 0.7311, 0.7311])
    """
    bias, p = _operand_and_p("gate_dropout", bias, p)
    if is_dynamo_compiling() or has_torch_function_variadic(input, bias):
        return torch.ops.gelu_kernels.fused_gate_dropout(
            input,
            bias,
            p,
            gate=gate,
            training=training,
            save=save,
            dither=dither,
            generator=generator,
        )
    return _C.fused_gate_dropout(input, bias, p, gate, training, save, dither, generator)


def glu_dropout(
    input: Tensor,
    up: Tensor | float | None = None,
    p: float = P,
    *,
    gate: str = "normal",
    training: bool = True,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Fused gated linear unit and dropout: ``dropout(gate(input) * up, p, training)``.

    .. math:: y = m \, g(x) \, \text{up} / (1 - p), \quad m \sim \operatorname{Bernoulli}(1 - p)

    One pass forward; one pass backward for both gradients.

    Args:
        input, up: as for :func:`geglu`; without ``up``, the halves of ``input``:
            ``glu_dropout(input, p)``.
        p, training, gate, generator: as for :func:`gate_dropout`.

    Returns:
        A tensor, as :func:`geglu` returns it.

    Raises:
        TypeError: a dtype or layout is not as for :func:`geglu`.
        ValueError: a shape, a device or ``gate`` is not as for :func:`geglu`; ``p`` is not from 0
            to 1.

    Accuracy and random numbers: as for :func:`gate_dropout`, but float16 and bfloat16 are within
    0.6 units in the last place (0.7 for the gradient of ``input``), and float32 and float64 have a
    relative error below 5.5 eps (6.5 eps for that gradient). The row-major index is that of the
    result.

    Source: Shazeer, "GLU Variants Improve Transformer" (2020), section 2; Srivastava et al.,
    "Dropout: A Simple Way to Prevent Neural Networks from Overfitting" (2014), section 10.

    >>> x, up = torch.ones(4), torch.full((4,), 2.0)
    >>> glu_dropout(x, up, 0.5, generator=torch.Generator().manual_seed(0))
    tensor([0.0000, 0.0000, 3.3654, 0.0000])
    >>> glu_dropout(torch.cat([x, up]), 0.5, generator=torch.Generator().manual_seed(0))
    tensor([0.0000, 0.0000, 3.3654, 0.0000])
    """
    up, p = _operand_and_p("glu_dropout", up, p)
    if is_dynamo_compiling() or has_torch_function_variadic(input, up):
        return torch.ops.gelu_kernels.fused_glu_dropout(
            input, up, p, gate=gate, training=training, generator=generator
        )
    return _C.fused_glu_dropout(input, up, p, gate, training, generator)
