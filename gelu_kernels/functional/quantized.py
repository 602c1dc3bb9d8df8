"""Gates and gated linear units with 8-bit results, for ``torch.nn.functional.scaled_mm``."""

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.overrides import has_torch_function_variadic

from gelu_kernels import _C
from gelu_kernels.functional.arguments import gate_for


class Quantized(NamedTuple):
    """8-bit numbers and their scales: each value is ``data`` times ``scale``.

    >>> quantized_gate(torch.zeros(1, 32)).data.dtype
    torch.float8_e4m3fn
    """

    data: Tensor
    scale: Tensor


class QuantizedWithAmax(NamedTuple):
    """8-bit numbers for a given scale, and the largest magnitude before quantisation.

    >>> x = torch.full((1, 16), 100.0)
    >>> quantized_gate(x, scaling="TensorWise", scale=torch.tensor(0.25)).amax
    tensor(100.)
    """

    data: Tensor
    amax: Tensor


# Quantized, QuantizedWithAmax for "TensorWise", or two Quantized for along="both". Not their union,
# which every caller would have to narrow.
Results = Any


def name_of(choice: str | Enum) -> str:
    """The name of a member of ``torch.nn.functional.ScalingType`` or ``SwizzleType``."""
    return getattr(choice, "name", choice)


def pairs(tensors: Sequence[Tensor], along: str) -> Results:
    """The data and scales along the rows, along the columns, or both, as ``along`` asks."""
    row, column = Quantized(*tensors[:2]), Quantized(*tensors[-2:])
    return {"row": row, "column": column, "both": (row, column)}[along]


def _call(
    op: str,
    input: Tensor,
    other: Tensor | None,
    gate: str,
    dtype: torch.dtype,
    scaling: str | Enum,
    scale: Tensor | None,
    along: str,
    mode: str,
    swizzle: str | Enum,
) -> Results:
    """Calls an operator, whose other operand is a bias or ``up``, by the quickest route."""
    scaling, swizzle = name_of(scaling), name_of(swizzle)
    if is_dynamo_compiling() or has_torch_function_variadic(input, other, scale):
        options = {"scaling": scaling, "along": along, "mode": mode, "swizzle": swizzle}
        operator = getattr(torch.ops.gelu_kernels, op)
        results = operator(input, other, gate=gate, dtype=dtype, scale=scale, **options)
    else:
        results = getattr(_C, op)(input, other, gate, dtype, scaling, scale, along, mode, swizzle)
    return QuantizedWithAmax(*results) if scaling == "TensorWise" else pairs(results, along)


def quantized_gate(
    input: Tensor,
    bias: Tensor | None = None,
    *,
    gate: str = "normal",
    dtype: torch.dtype = torch.float8_e4m3fn,
    scaling: str | Enum = "BlockWise1x32",
    scale: Tensor | None = None,
    along: str = "row",
    mode: str = "floor",
    swizzle: str | Enum = "NO_SWIZZLE",
) -> Results:
    r"""Gate with a result in FP8 or MXFP8, as an operand of ``torch.nn.functional.scaled_mm``.

    In one pass: :math:`y = g(\text{input} + \text{bias})` is rounded to the dtype of ``input``, as
    :func:`gate` rounds it; then :math:`\text{data} = y / \text{scale}` is rounded to eight bits.

    Rows run along the last dimension of ``input``; there are N rows of length M.

    Args:
        input: a tensor of at least one dimension and any strides, float32 or bfloat16.
        bias: as for :func:`bias_gelu`.
        gate: as for :func:`gate`.
        dtype: ``torch.float8_e4m3fn`` or ``torch.float8_e5m2``. The largest numbers are 448 and
            57344.
        scaling: which numbers share a scale, as a name or a member of
            ``torch.nn.functional.ScalingType``:

            - ``"TensorWise"``: all of y; the scale is given. M is a multiple of 16.
            - ``"RowWise"``: a row; the scale is max abs(y) / 448 (57344). M is a multiple of 16.
            - ``"BlockWise1x128"``: 128 numbers of a row; the scale is max abs(y) / 448 (57344). M
              is a multiple of 128.
            - ``"BlockWise1x32"``: 32 numbers; the scale is a power of two (MXFP8). M is a multiple
              of 32.
        scale: for ``"TensorWise"``, one positive number, float32, on the device of ``input``.
        along: for ``"BlockWise1x32"``, the direction of the blocks: along a ``"row"``, along a
            ``"column"``, or ``"both"``. For columns N is a multiple of 32.
        mode: for ``"BlockWise1x32"``, how the power of two is chosen. ``"floor"``: the largest
            power of two up to max abs(y), divided by the largest one in ``dtype``, as in the MX
            specification; numbers above 448 (57344) times the scale saturate. ``"rceil"``:
            max abs(y) / 448 (57344), rounded up to a power of two.
        swizzle: for ``"BlockWise1x32"``, the layout of the scales, as a name or a member of
            ``torch.nn.functional.SwizzleType``: ``"NO_SWIZZLE"`` or ``"SWIZZLE_32_4_4"``, which
            matrix instructions read.

    Returns:
        - By default :class:`Quantized`. ``data`` has the shape of ``input`` and is contiguous.
          ``scale`` is (..., 1) or (..., M / 128) float32, or (..., M / 32)
          ``torch.float8_e8m0fnu``. As ``scaled_mm`` requires, scales of 128 numbers are stored
          column by column, and swizzled ones in a matrix of (32 ceil(N / 128), 16 ceil(M / 128)),
          padded with zeros.
        - For ``"column"``: :class:`Quantized` of the transpose, ``data`` (M, N) and ``scale``
          (M, N / 32), or swizzled.
        - For ``"both"``: a pair of these two.
        - For ``"TensorWise"``: :class:`QuantizedWithAmax`, with ``amax`` = max abs(y), float32.

        The gradient passes straight through to y, in the dtype of ``input``: see
        :func:`dequantize`.

    Raises:
        TypeError: a dtype or layout is not as above.
        ValueError: a shape, a size, a device, a name or ``scale`` is not as above. The value of
            ``scale`` is checked only on a CPU; on a GPU, one that is not positive gives NaN data.
        NotImplementedError: under ``torch.func.vmap``, or in forward-mode AD.

    Accuracy: each number is y times the inverse of the scale, rounded to nearest, ties to even.
    Beyond the largest number of ``dtype`` it saturates; docs/guide/low_precision.md covers NaN,
    infinity, zeros and subnormal numbers. Bits are the same on every device and for any number of
    threads.

    Source: OCP, "Microscaling Formats (MX) Specification" 1.0 (2023), sections 5 and 6; "8-bit
    Floating Point Specification" 1.0 (2023).

    >>> data, scale = quantized_gate(torch.full((1, 32), 100.0))
    >>> data.float()[0, :2], scale.float()
    (tensor([384., 384.]), tensor([[0.2500]]))
    """
    return _call("quantized_gate", input, bias, gate, dtype, scaling, scale, along, mode, swizzle)


def quantized_glu(
    input: Tensor,
    up: Tensor | None = None,
    *,
    gate: str,
    dtype: torch.dtype = torch.float8_e4m3fn,
    scaling: str | Enum = "BlockWise1x32",
    scale: Tensor | None = None,
    along: str = "row",
    mode: str = "floor",
    swizzle: str | Enum = "NO_SWIZZLE",
) -> Results:
    r"""Gated linear unit, ``gate(input) * up``, with a result in FP8 or MXFP8, in one pass.

    :math:`y = g(\text{input}) \cdot \text{up}` is quantised as by :func:`quantized_gate`.

    Args:
        input, up: as for :func:`glu`, float32 or bfloat16; without ``up``, the halves of ``input``.
        gate: the name of the gate, as for :func:`gate`.
        dtype, scaling, scale, along, mode, swizzle: as for :func:`quantized_gate`; M is the length
            of a row of y.

    Returns:
        As :func:`quantized_gate`.

    Raises:
        TypeError, ValueError, NotImplementedError: as :func:`quantized_gate`.

    Accuracy: as :func:`quantized_gate`, of y as :func:`glu` rounds it.

    Source: as :func:`quantized_gate`, and Shazeer, "GLU Variants Improve Transformer" (2020).

    >>> data, scale = quantized_glu(torch.full((1, 32), 100.0), torch.ones(1, 32), gate="normal")
    >>> data.float()[0, :2], scale.float()
    (tensor([384., 384.]), tensor([[0.2500]]))
    """
    return _call("quantized_glu", input, up, gate, dtype, scaling, scale, along, mode, swizzle)


def quantized_geglu(
    input: Tensor, up: Tensor | None = None, *, approximate: str = "none", **options: object
) -> Results:
    r"""GELU-gated linear unit, ``geglu(input, up)``, with a result in FP8 or MXFP8.

    Args:
        input, up, approximate: as for :func:`geglu`; float32 or bfloat16.
        options: the keyword arguments of :func:`quantized_glu`, except ``gate``.

    Returns, raises, accuracy, source: as :func:`quantized_glu`.

    >>> quantized_geglu(torch.ones(1, 64)).scale.float()
    tensor([[0.0020]])
    """
    gate = gate_for("quantized_geglu", approximate)
    return quantized_glu(input, up, gate=gate, **options)


def quantized_swiglu(input: Tensor, up: Tensor | None = None, **options: object) -> Results:
    r"""SiLU-gated linear unit, ``swiglu(input, up)``, with a result in FP8 or MXFP8.

    Args:
        input, up: as for :func:`swiglu`, float32 or bfloat16.
        options: the keyword arguments of :func:`quantized_glu`, except ``gate``.

    Returns, raises, accuracy, source: as :func:`quantized_glu`.

    >>> quantized_swiglu(torch.ones(1, 64)).scale.float()
    tensor([[0.0020]])
    """
    return quantized_glu(input, up, gate="logistic", **options)
