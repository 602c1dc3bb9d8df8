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


def mode_or_default(mode: str | None, scaling: str) -> str:
    """As the public operators choose it."""
    if mode is not None:
        return mode
    return "floor" if scaling == "BlockWise1x32" else "amax"


def _call(op: str, input: Tensor, other: Tensor | None, **options: object) -> Results:
    """Calls an operator, whose other operand is a bias or ``up``, by the quickest route.

    The options are in the order of its schema.
    """
    scaling = options["scaling"] = name_of(options["scaling"])
    options["swizzle"] = name_of(options["swizzle"])
    tensors = (options["scale"], options["offsets"], options.get("weight"))
    if is_dynamo_compiling() or has_torch_function_variadic(input, other, *tensors):
        results = getattr(torch.ops.gelu_kernels, op)(input, other, **options)
    else:
        results = getattr(_C, op)(input, other, *options.values())
    if scaling == "TensorWise":
        return QuantizedWithAmax(*results)
    return pairs(results, options["along"])


def quantized_gate(
    input: Tensor,
    bias: Tensor | None = None,
    *,
    gate: str = "normal",
    dtype: torch.dtype = torch.float8_e4m3fn,
    scaling: str | Enum = "BlockWise1x32",
    scale: Tensor | None = None,
    along: str = "row",
    mode: str | None = None,
    swizzle: str | Enum = "NO_SWIZZLE",
    packed: bool = False,
    offsets: Tensor | None = None,
) -> Results:
    r"""Gate with a result in FP8 or MXFP8, as an operand of ``torch.nn.functional.scaled_mm``.

    In one pass: :math:`y = g(\text{input} + \text{bias})` is rounded to the dtype of ``input``, as
    :func:`gate` rounds it; then :math:`\text{data} = y / \text{scale}` is rounded to eight bits.
    Only ``"RowWise"`` along columns takes two passes over ``input``.

    Rows run along the last dimension of ``input``; there are N rows of length M.

    Args:
        input: a tensor of at least one dimension and any strides, float32 or bfloat16.
        bias: as for :func:`bias_gelu`.
        gate: as for :func:`gate`.
        dtype: ``torch.float8_e4m3fn`` or ``torch.float8_e5m2``. The largest numbers are 448 and
            57344.
        scaling: which numbers share a scale, as a name or a member of
            ``torch.nn.functional.ScalingType``.

            - ``"TensorWise"``: all of y; the scale is given. M is a multiple of 16.
            - ``"RowWise"``: a row; along columns, a column. M is a multiple of 16; for columns N
              too.
            - ``"BlockWise1x128"``: 128 numbers of a row or column. M is a multiple of 128; for
              columns N too.
            - ``"BlockWise1x32"``: 32 numbers (MXFP8). M is a multiple of 32; for columns N too.
        scale: for ``"TensorWise"``, one positive number, float32, on the device of ``input``.
        along: the direction in which numbers share a scale: along a ``"row"``, along a
            ``"column"``, or ``"both"``. ``"TensorWise"`` takes only ``"row"``.
        mode: how a scale follows from amax, the largest magnitude of its numbers. L is the largest
            number of ``dtype``.

            - ``"amax"``: amax / L. The default, except for ``"BlockWise1x32"``, whose scales are
              powers of two.
            - ``"floor"``: the largest power of two up to amax, divided by the largest one in
              ``dtype``, as in the MX specification; numbers above L times the scale saturate. The
              default for ``"BlockWise1x32"``.
            - ``"rceil"``: amax / L, rounded up to a power of two.
        swizzle: for ``"BlockWise1x32"``, the layout of the scales, as a name or a member of
            ``torch.nn.functional.SwizzleType``: ``"NO_SWIZZLE"`` or ``"SWIZZLE_32_4_4"``, which
            matrix instructions read.
        packed: for ``"BlockWise1x128"`` with ``"floor"`` or ``"rceil"``: whether scales are stored
            as their exponents plus 127, four in an int32, the first in the low byte, as DeepGEMM
            takes them.
        offsets: the ends of groups of rows, such as the tokens of each expert, as for
            ``torch.nn.functional.grouped_mm``: int32, ascending, on the device of ``input``. Each
            group has scales of its own along its columns, and tiles of its own of swizzled scales.
            Its last block of a column may be shorter, so columns take any N that is a multiple of
            16. Groups may be empty. Results for rows after the last end are unspecified.

    Returns:
        - By default :class:`Quantized`. ``data`` has the shape of ``input`` and is contiguous.
          ``scale`` is (..., 1) or (..., M / 128) float32, or (..., M / 32)
          ``torch.float8_e8m0fnu``. As ``scaled_mm`` requires, scales of 128 numbers are stored
          column by column, and swizzled ones in a matrix of (32 ceil(N / 128), 16 ceil(M / 128)),
          padded with zeros. Packed ones are (..., ceil(M / 512)) int32, stored column by column;
          each column is padded to a multiple of four.
        - For ``"column"``: :class:`Quantized` of the transpose, ``data`` (M, N) and ``scale``
          (M, 1), (M, N / 128) or (M, N / 32), or swizzled or packed.
        - For ``"both"``: a pair of these two.
        - For ``"TensorWise"``: :class:`QuantizedWithAmax`, with ``amax`` = max abs(y), float32.
        - With G groups, ``"RowWise"`` columns have a ``scale`` of (M, G), which is 2^-126 for an
          empty group. Blocks of b along columns have one of (M, B), B = (N + (b - 1) G) // b: the
          blocks of all groups, one after the other. Swizzled scales have the tiles of all groups,
          one after the other, as of 128 T rows, T = (N + 127 G) // 128. B and T are the most that
          N rows in G groups can need; what is not used is zero.

        The gradient passes straight through to y, in the dtype of ``input``: see
        :func:`dequantize`.

    Raises:
        TypeError: a dtype or layout is not as above.
        ValueError: a shape, a size, a device, a name, ``scale`` or ``offsets`` is not as above. The
            values of ``scale`` and ``offsets`` are checked only on a CPU. On a GPU, a scale that is
            not positive gives NaN data, and an end counts as at least the one before and at most N.
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
    return _call(
        "quantized_gate",
        input,
        bias,
        gate=gate,
        dtype=dtype,
        scaling=scaling,
        scale=scale,
        along=along,
        mode=mode,
        swizzle=swizzle,
        packed=packed,
        offsets=offsets,
    )


def quantized_glu(
    input: Tensor,
    up: Tensor | None = None,
    *,
    gate: str,
    limit: float | None = None,
    up_offset: float = 0.0,
    weight: Tensor | None = None,
    dtype: torch.dtype = torch.float8_e4m3fn,
    scaling: str | Enum = "BlockWise1x32",
    scale: Tensor | None = None,
    along: str = "row",
    mode: str | None = None,
    swizzle: str | Enum = "NO_SWIZZLE",
    packed: bool = False,
    offsets: Tensor | None = None,
) -> Results:
    r"""Gated linear unit, :func:`glu`, with a result in FP8 or MXFP8.

    :math:`y = g(\min(\text{input}, \text{limit})) \cdot (\text{clamp}(\text{up}, -\text{limit},
    \text{limit}) + \text{up\_offset}) \cdot \text{weight}` is rounded as :func:`glu` rounds it, and
    quantised as by :func:`quantized_gate`, in as many passes.

    Args:
        input, up: as for :func:`glu`, float32 or bfloat16; without ``up``, the halves of ``input``.
        gate: the name of the gate, as for :func:`gate`.
        limit, up_offset, weight: as for :func:`glu`.
        dtype, scaling, scale, along, mode, swizzle, packed, offsets: as for
            :func:`quantized_gate`; M is the length of a row of y.

    Returns:
        As :func:`quantized_gate`.

    Raises:
        TypeError, ValueError, NotImplementedError: as :func:`quantized_gate` and :func:`glu`.

    Accuracy: as :func:`quantized_gate`, of y as :func:`glu` rounds it.

    Source: as :func:`quantized_gate`, and Shazeer, "GLU Variants Improve Transformer" (2020).

    >>> data, scale = quantized_glu(torch.full((1, 32), 100.0), torch.ones(1, 32), gate="normal")
    >>> data.float()[0, :2], scale.float()
    (tensor([384., 384.]), tensor([[0.2500]]))
    """
    return _call(
        "quantized_glu",
        input,
        up,
        gate=gate,
        limit=limit,
        up_offset=up_offset,
        weight=weight,
        dtype=dtype,
        scaling=scaling,
        scale=scale,
        along=along,
        mode=mode,
        swizzle=swizzle,
        packed=packed,
        offsets=offsets,
    )


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
