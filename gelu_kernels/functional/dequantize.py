"""Back from eight-bit numbers with scales."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from gelu_kernels.functional.quantized import Quantized, name_of


class _Dequantize(torch.autograd.Function):
    @staticmethod
    def forward(data: Tensor, scale: Tensor, block: int, dtype: torch.dtype) -> Tensor:
        numbers = data.float().unflatten(-1, (-1, block)) * scale.float().unsqueeze(-1)
        numbers = numbers.flatten(-2)
        # No `to` that does nothing: torch 2.11 compiles the gradient of its result to zero.
        return numbers if dtype == numbers.dtype else numbers.to(dtype)

    @staticmethod
    def setup_context(ctx: object, inputs: tuple[object, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> tuple[Tensor | None, ...]:
        return grad, None, None, None


def _plain(scale: Tensor, rows: int, columns: int) -> Tensor:
    """Scales that were swizzled, as a matrix."""
    tiles = -(-rows // 128), -(-columns // 4)
    whole = scale.view(*tiles, 32, 4, 4).permute(0, 3, 2, 1, 4).reshape(128 * tiles[0], -1)
    return whole[:rows, :columns]


def dequantize(
    data: Tensor,
    scale: Tensor,
    *,
    dtype: torch.dtype = torch.bfloat16,
    swizzle: str | Enum = "NO_SWIZZLE",
) -> Tensor:
    r"""The numbers that eight bits stand for, data times scale. The gradient goes straight through
    to the tensor that was quantised, in full, where ``data.float()`` would round it to the dtype of
    ``data``.

    Args:
        data, scale: as :func:`quantized_gate` returns them; or for ``"TensorWise"`` the scale that
            was given.
        dtype: of the result.
        swizzle: as it was asked for.

    Returns:
        A tensor of the shape of ``data``.

    >>> from gelu_kernels.functional import quantized_gate
    >>> dequantize(*quantized_gate(torch.full((1, 32), 100.0)))[0, :2]
    tensor([96., 96.], dtype=torch.bfloat16)
    """
    if name_of(swizzle) != "NO_SWIZZLE":
        columns = data.shape[-1]
        rows = data.numel() // columns if columns else 0
        scale = _plain(scale, rows, columns // 32).view(*data.shape[:-1], -1)
    if scale.dim() == 0 or scale.shape[:-1] != data.shape[:-1]:
        scale = scale.reshape(()).expand(*data.shape[:-1], 1)
    return _Dequantize.apply(data, scale, data.shape[-1] // scale.shape[-1], dtype)


def _identity(t: Tensor) -> tuple[object, ...] | None:
    """Equal for tensors that have the same numbers in the same place, now and when it was taken.
    None where autograd saves no such tensor, or where there is no storage to compare."""
    if t.layout != torch.strided or t.is_inference():
        return None
    place = t.untyped_storage()._cdata, t.storage_offset(), t.shape, t.stride()
    return *place, t.dtype, t._version


@contextmanager
def save_quantized(*saved: tuple[Tensor, Quantized]) -> Iterator[None]:
    """In this context autograd saves the quantised form of a tensor in place of it, and backward
    computes with :func:`dequantize` of that: half of the memory, and no more work for a caller that
    has quantised the tensor anyway.

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
