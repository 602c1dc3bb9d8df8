"""Gates, with or without a bias that is added first."""

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.overrides import has_torch_function_unary, has_torch_function_variadic

from gelu_kernels import _C
from gelu_kernels.functional.arguments import check_save


def draw_dither_seed(function: str, input: Tensor, save: str | None) -> Tensor:
    """Draws a seed, even if no gradient is wanted: the first forward pass of a checkpoint, which
    saves no code, must draw the same seed as the second, which does."""
    check_save(function, save, dither=True)
    if is_dynamo_compiling() or has_torch_function_unary(input):
        return torch.ops.gelu_kernels.draw_seed(input)
    return _C.draw_seed(input)


def gelu(
    input: Tensor, *, approximate: str = "none", save: str | None = None, dither: bool = False
) -> Tensor:
    r"""Gaussian error linear unit, ``x Φ(x)``; drop-in for ``torch.nn.functional.gelu``.

    Args:
        input: a tensor of any shape and strides, float64, float32, float16 or bfloat16.
        approximate: ``"none"`` for :math:`x \, \Phi(x)`; ``"tanh"`` for
            :math:`x \, (1 + \tanh(\sqrt{2/\pi} (x + 0.044715 x^3))) / 2`; ``"sigmoid"`` for
            :math:`x \, \sigma(1.702 x)`.
        save: what is saved for backward: None for ``input``, ``"8bit"`` or ``"4bit"`` for the
            derivative, as a code of 8 or 4 bits per element. The result has the same bits. In the
            gradient the derivative has an error of at most 0.0025 or 0.05, and none where it is 0
            or 1. The gradient is linear: second derivatives are 0. Forward-mode AD uses the code
            too; if nothing requires a gradient, there is no code, and it uses the exact derivative.
        dither: whether to round the derivative stochastically, to one of the two nearest codes. The
            mean is then exact, and the error at most one step, 0.005 or 0.1. Each call draws a seed
            from the default generator, even if no gradient is wanted. docs/guide/memory.md says
            when to use it.

    Returns:
        A tensor of the same shape, dtype and (where ``input`` is dense) strides.

    Raises:
        TypeError: ``input`` has another dtype, or is neither strided nor jagged.
        ValueError: ``approximate`` or ``save`` is unknown, or ``dither`` is True without ``save``.

    Accuracy: float16 and bfloat16 correctly rounded; float32 and float64 within 4 units in the last
    place, also in the left tail. gelu(-inf) is -0, gelu(inf) is inf.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), section 2.

    >>> gelu(torch.tensor([-10.0, 0.0, 1.0]))
    tensor([-7.6199e-23,  0.0000e+00,  8.4134e-01])
    """
    seed = draw_dither_seed("gelu", input, save) if dither else None
    if is_dynamo_compiling() or has_torch_function_unary(input):
        return torch.ops.gelu_kernels.fused_gelu(
            input, approximate=approximate, save=save, seed=seed
        )
    return _C.fused_gelu(input, approximate, save, seed)


def bias_gelu(
    input: Tensor,
    bias: Tensor,
    *,
    approximate: str = "none",
    save: str | None = None,
    dither: bool = False,
) -> Tensor:
    r"""Fused bias add and GELU, ``gelu(input + bias)``: one pass forward, one pass backward.

    Args:
        input: a tensor of at least one dimension, float64, float32, float16 or bfloat16.
        bias: a vector as long as the last dimension of ``input``, of the same dtype and device.
            Under autocast it is cast to the dtype of ``input``. Elsewhere a bias of another dtype
            is refused, as ``torch.nn.functional.linear`` refuses it.
        approximate, save, dither: as for :func:`gelu`.

    Returns:
        A tensor of the shape, dtype and (where ``input`` is dense) strides of ``input``.

    Raises:
        TypeError: a dtype or layout is not as above.
        ValueError: a shape, a device, ``approximate``, ``save`` or ``dither`` is not as above.

    Accuracy: as :func:`gelu`, of the sum computed in float32 (float64 for float64), which is not
    rounded to a 16-bit dtype in between. The gradient of ``bias`` is summed in float32 (float64) in
    an order that depends only on the shape: the same bits for any number of threads.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), section 2.

    >>> bias_gelu(torch.zeros(2, 2), torch.tensor([1.0, -1.0]))
    tensor([[ 0.8413, -0.1587],
            [ 0.8413, -0.1587]])
    """
    seed = draw_dither_seed("bias_gelu", input, save) if dither else None
    if is_dynamo_compiling() or has_torch_function_variadic(input, bias):
        return torch.ops.gelu_kernels.fused_bias_gelu(
            input, bias, approximate=approximate, save=save, seed=seed
        )
    return _C.fused_bias_gelu(input, bias, approximate, save, seed)


def gate(
    input: Tensor,
    bias: Tensor | None = None,
    *,
    gate: str = "normal",
    save: str | None = None,
    dither: bool = False,
) -> Tensor:
    r"""GELU, SiLU or another gate ``x F(x)``, chosen by name, with an optional fused bias add.

    F is a distribution function, and x is ``input`` or ``input + bias``. One pass.

    Args:
        input: as for :func:`gelu`; with ``bias``, as for :func:`bias_gelu`.
        bias: as for :func:`bias_gelu`.
        gate: the name of the gate, which selects F. Both the mathematical names and the field's
            names are taken: ``"normal"`` or ``"gelu"``, ``"normal_tanh"`` or ``"gelu_tanh"``,
            ``"logistic_1702"`` or ``"quick_gelu"``, ``"logistic"`` or ``"silu"``. Other gates have
            only a mathematical name. docs/guide/accuracy.md lists all gates.
        save, dither: as for :func:`gelu`.

    Returns:
        A tensor of the shape, dtype and (where ``input`` is dense) strides of ``input``.

    Raises:
        TypeError: a dtype or layout is not as above.
        ValueError: a shape, a device, ``gate``, ``save`` or ``dither`` is not as above.

    Accuracy: as :func:`gelu`, and with ``bias`` as :func:`bias_gelu`.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), section 2.

    >>> gate(torch.zeros(2), torch.tensor([1.0, -1.0]), gate="logistic_1702")
    tensor([ 0.8458, -0.1542])
    """
    seed = draw_dither_seed("gate", input, save) if dither else None
    if is_dynamo_compiling() or has_torch_function_variadic(input, bias):
        return torch.ops.gelu_kernels.fused_gate(input, bias, gate=gate, save=save, seed=seed)
    return _C.fused_gate(input, bias, gate, save, seed)


def silu(input: Tensor, *, save: str | None = None, dither: bool = False) -> Tensor:
    r"""Sigmoid linear unit, ``x σ(x)``; replaces ``torch.nn.functional.silu``.

    It is the gate of the logistic distribution.

    Args:
        input: a tensor of any shape and strides, float64, float32, float16 or bfloat16.
        save, dither: as for :func:`gelu`.

    Returns:
        A tensor of the same shape, dtype and (where ``input`` is dense) strides.

    Raises:
        TypeError: ``input`` has another dtype, or is neither strided nor jagged.
        ValueError: ``save`` is unknown, or ``dither`` is True without ``save``.

    Accuracy: as :func:`gelu`. silu(-inf) is -0, silu(inf) is inf.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), section 2; Elfwing et al.,
    "Sigmoid-Weighted Linear Units" (2017), section 2.

    >>> silu(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.2689,  0.0000,  0.7311])
    """
    seed = draw_dither_seed("silu", input, save) if dither else None
    if is_dynamo_compiling() or has_torch_function_unary(input):
        return torch.ops.gelu_kernels.fused_gate(input, gate="logistic", save=save, seed=seed)
    return _C.fused_gate(input, None, "logistic", save, seed)


def lalu(input: Tensor, *, save: str | None = None, dither: bool = False) -> Tensor:
    r"""Laplace linear unit: ``x F(x)``, with F the Laplace distribution function.

    It is :math:`x \, e^x / 2` for x < 0 and :math:`x \, (1 - e^{-x} / 2)` otherwise.

    Args:
        input: a tensor of any shape and strides, float64, float32, float16 or bfloat16.
        save, dither: as for :func:`gelu`.

    Returns:
        A tensor of the same shape, dtype and (where ``input`` is dense) strides.

    Raises:
        TypeError: ``input`` has another dtype, or is neither strided nor jagged.
        ValueError: ``save`` is unknown, or ``dither`` is True without ``save``.

    Accuracy: as :func:`gelu`. lalu(-inf) is -0, lalu(inf) is inf.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), section 4.

    >>> lalu(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1839,  0.0000,  0.8161])
    """
    seed = draw_dither_seed("lalu", input, save) if dither else None
    if is_dynamo_compiling() or has_torch_function_unary(input):
        return torch.ops.gelu_kernels.fused_gate(input, gate="laplace", save=save, seed=seed)
    return _C.fused_gate(input, None, "laplace", save, seed)


def cauchy_gate(input: Tensor, *, save: str | None = None, dither: bool = False) -> Tensor:
    r"""Gate of the Cauchy distribution, ``x (1/2 + arctan(x)/π)``, similar to the ELU.

    It tends to :math:`-1/\pi` at :math:`-\infty`.

    Args:
        input: a tensor of any shape and strides, float64, float32, float16 or bfloat16.
        save, dither: as for :func:`gelu`.

    Returns:
        A tensor of the same shape, dtype and (where ``input`` is dense) strides.

    Raises:
        TypeError: ``input`` has another dtype, or is neither strided nor jagged.
        ValueError: ``save`` is unknown, or ``dither`` is True without ``save``.

    Accuracy: as :func:`gelu`. cauchy_gate(-inf) is :math:`-1/\pi`, with a derivative of 0, and
    cauchy_gate(inf) is inf.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), section 4.

    >>> cauchy_gate(torch.tensor([-torch.inf, -1.0, 0.0, 1.0]))
    tensor([-0.3183, -0.2500,  0.0000,  0.7500])
    """
    seed = draw_dither_seed("cauchy_gate", input, save) if dither else None
    if is_dynamo_compiling() or has_torch_function_unary(input):
        return torch.ops.gelu_kernels.fused_gate(input, gate="cauchy", save=save, seed=seed)
    return _C.fused_gate(input, None, "cauchy", save, seed)
