"""Dequantises 8-bit numbers with scales."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from gelu_kernels.functional.arguments import check_type
from gelu_kernels.functional.quantized import Quantized, name_of
from gelu_kernels.functional.scale_layout import of_grouped_columns, unpacked, unswizzled


class _Dequantize(torch.autograd.Function):
    @staticmethod
    def forward(data: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
        blocks = scale.shape[-1]
        # torch.compile of torch 2.11 does not take sym_max of an int.
        divisor = torch.sym_max(blocks, 1) if isinstance(blocks, torch.SymInt) else max(blocks, 1)
        block = data.shape[-1] // divisor
        numbers = data.float().unflatten(-1, (blocks, block)) * scale.float().unsqueeze(-1)
        numbers = numbers.flatten(-2)
        # Skip a `to` that changes nothing: torch 2.11 compiles its gradient to zero.
        return numbers if dtype == numbers.dtype else numbers.to(dtype)

    @staticmethod
    def setup_context(ctx: object, inputs: tuple[object, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> tuple[Tensor | None, ...]:
        # In float32: autograd adds the gradients of several results in the dtype of the first.
        return grad if grad.dtype == torch.float32 else grad.float(), None, None


def dequantize(
    data: Tensor,
    scale: Tensor,
    *,
    dtype: torch.dtype = torch.bfloat16,
    swizzle: str | Enum = "NO_SWIZZLE",
    offsets: Tensor | None = None,
    along: str = "row",
    scaling: str | Enum = "BlockWise1x32",
) -> Tensor:
    r"""Dequantises: returns ``data`` times ``scale``, with a straight-through gradient.

    The gradient passes to the tensor that was quantised without rounding; ``data.float()`` would
    round it to the dtype of ``data``.

    Args:
        data, scale: as :func:`quantized_gate` returns them; for ``"TensorWise"`` the scale passed
            to it.
        dtype: the dtype of the result. The gradient is cast to the dtype of the tensor that was
            quantised.
        swizzle: as passed to :func:`quantized_gate`.
        offsets: as passed to :func:`quantized_gate`. With it, ``along`` is the direction of this
            result, ``"row"`` or ``"column"``, and ``scaling`` is as passed there; without, they do
            not matter.

    Returns:
        A tensor of the shape of ``data``.

    >>> from gelu_kernels.functional import quantized_gate
    >>> dequantize(*quantized_gate(torch.full((1, 32), 100.0)))[0, :2]
    tensor([96., 96.], dtype=torch.bfloat16)
    """
    scaling, swizzle = name_of(scaling), name_of(swizzle)
    check_type("dequantize", "data", data, Tensor)
    check_type("dequantize", "scale", scale, Tensor)
    check_type("dequantize", "dtype", dtype, torch.dtype)
    check_type("dequantize", "swizzle", swizzle, str)
    check_type("dequantize", "along", along, str)
    check_type("dequantize", "scaling", scaling, str)
    if offsets is not None:
        check_type("dequantize", "offsets", offsets, Tensor)
    is_swizzled = swizzle != "NO_SWIZZLE"
    has_grouped_columns = offsets is not None and along == "column"
    if scale.dtype == torch.int32:
        scale = unpacked(
            scale, 4 * scale.shape[-1] if has_grouped_columns else data.shape[-1] // 128
        )
    if has_grouped_columns:
        scale = of_grouped_columns(scale, data, offsets, scaling, is_swizzled)
    elif is_swizzled:
        scale = unswizzled(scale, data, offsets)
    if scale.dim() != data.dim():  # one number
        scale = scale.reshape([1] * data.dim())
    return _Dequantize.apply(data, scale, dtype)


def _identity(t: Tensor) -> tuple[object, ...] | None:
    """A key that two tensors share if they view the same memory in the same way, with no in-place
    operation in between. None for a tensor that autograd cannot save or that has no storage."""
    if t.layout != torch.strided or t.is_inference():
        return None
    place = t.untyped_storage()._cdata, t.storage_offset(), t.shape, t.stride()
    return *place, t.dtype, t._version


@contextmanager
def save_quantized(*saved: tuple[Tensor, Quantized]) -> Iterator[None]:
    """Context manager: autograd saves the quantised form of a tensor instead of the tensor.

    Backward computes with :func:`dequantize` of that form. In bfloat16 this takes half the memory,
    and no extra work in the forward pass if the caller has quantised the tensor anyway.

    A view with other strides, or the tensor after an in-place operation, is saved as it is.

    Args:
        saved: pairs of a tensor and its quantised form, along the rows and not swizzled.

    >>> from gelu_kernels.functional import gelu
    >>> x = torch.full((1, 16), 0.26, requires_grad=True)
    >>> form = Quantized(torch.full((1, 16), 2.0).to(torch.float8_e4m3fn), torch.tensor([[0.125]]))
    >>> with save_quantized((x, form)):
    ...     y = gelu(x)
    >>> y.sum().backward()  # at 0.25
    >>> x.grad[0, :2]
    tensor([0.6954, 0.6954])
    """
    # While `saved` holds the tensors, no other tensor gets their storages.
    forms = {_identity(t): (quantized, t.dtype) for t, quantized in saved}
    forms.pop(None, None)

    def pack(t: Tensor) -> Tensor | tuple[Quantized, torch.dtype]:
        return forms.get(_identity(t), t)

    def unpack(packed: Tensor | tuple[Quantized, torch.dtype]) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        quantized, dtype = packed
        return dequantize(*quantized, dtype=dtype)

    with saved_tensors_hooks(pack, unpack):
        yield
