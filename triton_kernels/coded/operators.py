"""The core operators of a coded derivative, which write their first arguments, the results."""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from gelu_kernels.formulas.coefficients.codebook import codebook
from gelu_kernels.triton_kernels import bias_gradient, tuning
from gelu_kernels.triton_kernels.dropout.operators import factor_of, threshold_of
from gelu_kernels.triton_kernels.launch import Specialization, launch
from gelu_kernels.triton_kernels.matrices import TYPES, are_aligned, integer, pointer
from gelu_kernels.triton_kernels.seed import argument
from gelu_kernels.triton_kernels.tuning import VECTOR_BYTES, coded_tiles, map_tiles

contiguous = torch.contiguous_format
CODEBOOKS = {8: codebook["8bit"], 4: codebook["4bit"]}


def numbers_of(bits: int) -> tuple[int, int, int, int]:
    """The compiled-in values."""
    book = CODEBOOKS[bits]
    return bits, int(book.levels), int(book.zero), int(book.nan)


def real(dtype: torch.dtype) -> str:
    """The type in which a gate is evaluated."""
    return TYPES[bias_gradient.sum_type(dtype)]


def codes(dtype: torch.dtype, aligned: bool) -> str:
    """As many as a vector has elements are in a word. A greater alignment would let a thread access
    more at once, and threads exchange codes for it."""
    return f"*u8:{VECTOR_BYTES // dtype.itemsize}" if aligned else "*u8"


class ForwardKey(NamedTuple):
    gate: str
    dtype: torch.dtype
    is_biased: bool
    seed: str | None  # its type; None if nothing is random
    aligned: bool
    rows: int
    columns: int
    columns_first: bool
    octets: int  # of each thread
    repeated: bool
    grouped: bool
    in_rows: bool
    dither: bool
    drops: bool
    bits: int


def specialize_forward(key: ForwardKey) -> Specialization:
    operand = pointer(key.dtype, key.aligned)
    arguments = (
        operand,
        codes(key.dtype, key.aligned),
        operand,
        operand if key.is_biased else None,
        key.seed,
        *["i64"] * 2,
        "i64:8",
        *["i64"] * 5,
        real(key.dtype),
    )
    compiled_in = (*key[5:-1], *numbers_of(key.bits))
    functions = "value", "derivative_to_encode"
    precision = TYPES[key.dtype]
    return Specialization(
        "coded.kernels.coded_forward", arguments, compiled_in, key.gate, functions, precision
    )


def coded_forward(
    y: Tensor,
    code: Tensor,
    x: Tensor,
    bias: Tensor | None,
    seed: Tensor | None,
    gate: str,
    bits: int,
    p: float = 0.0,
    dither: bool = False,
    offset: int = 0,
    row_length: int = 0,
    row_stride: int = 0,
) -> None:
    elements = x.numel()
    if elements == 0:
        return
    if threshold_of(p) == 2**32:
        zero = numbers_of(bits)[2]
        y.zero_()
        code.fill_(zero if bits == 8 else zero << 4 | zero)
        return
    dense_x = x.contiguous()
    dense_y = y if y.is_contiguous() else torch.empty_like(x, memory_format=contiguous)
    bias = None if bias is None else bias.contiguous()
    columns = elements if bias is None else bias.numel()
    repeated = columns % 8 != 0 and columns != elements
    row_columns = elements if repeated else columns
    rows = elements // row_columns
    tiles = coded_tiles(rows, row_columns, x.itemsize)
    own_seed = argument(seed, x)
    key = ForwardKey(
        gate,
        x.dtype,
        bias is not None,
        own_seed.type,
        are_aligned((dense_y, code, dense_x, bias), ()),
        *tiles[:3],
        tiles.rows * tiles.columns // (8 * tuning.THREADS),
        repeated,
        row_length == 0 and offset % 8 == 0,
        row_length != 0,
        dither,
        p > 0,
        bits,
    )
    row_step = row_columns if rows > 1 else 0
    tensors = (dense_y, code, dense_x, bias, *own_seed.tensors)
    integers = (rows, row_columns, row_step, columns, offset, row_length, row_stride)
    numbers = (*own_seed.numbers, *integers, threshold_of(p), factor_of(p))
    launch("coded_forward", key, specialize_forward, tiles.grid, tensors, numbers)
    if dense_y is not y:
        y.copy_(dense_y)


def specialize_backward(key: tuple[torch.dtype, bool, int, int]) -> Specialization:
    dtype, aligned, elements, bits = key
    operand = pointer(dtype, aligned)
    arguments = (operand, operand, codes(dtype, aligned), "i64", real(dtype))
    return Specialization("coded.kernels.coded_backward", arguments, (elements, *numbers_of(bits)))


def coded_backward(dx: Tensor, dy: Tensor, code: Tensor, bits: int, p: float = 0.0) -> None:
    elements = dy.numel()
    if elements == 0:
        return
    dense_dy, code = dy.contiguous(), code.contiguous()
    dense_dx = dx if dx.is_contiguous() else torch.empty_like(dy, memory_format=contiguous)
    tiles = map_tiles(1, elements, dy.itemsize, 2)
    key = dy.dtype, are_aligned((dense_dx, dense_dy, code), ()), tiles.columns, bits
    tensors = (dense_dx, dense_dy, code)
    numbers = (elements, factor_of(p))
    launch("coded_backward", key, specialize_backward, tiles.grid, tensors, numbers)
    if dense_dx is not dx:
        dx.copy_(dense_dx)


def specialize_sums(bits: int, key: bias_gradient.Key) -> Specialization:
    operand = pointer(key.dtype, key.aligned)
    arguments = (
        operand,
        operand,
        codes(key.dtype, key.aligned),
        pointer(bias_gradient.sum_type(key.dtype), aligned=True),
        real(key.dtype),
        "i64",
        integer(key.dtype, key.whole),
        "i64",
        *[integer(key.dtype, key.aligned)] * 2,
        *(1 if consecutive else "i64" for consecutive in key.consecutive),
    )
    compiled_in = key.columns, key.columns_first, *numbers_of(bits)
    return Specialization("coded.column_sums.sum_coded_columns", arguments, compiled_in)


SPECIALIZE_SUMS = {bits: partial(specialize_sums, bits) for bits in (8, 4)}


def coded_backward_bias(
    dx: Tensor, dbias: Tensor, dy: Tensor, code: Tensor, bits: int, p: float = 0.0
) -> None:
    bias_gradient.sum_columns(
        "coded_backward_bias",
        SPECIALIZE_SUMS[bits],
        None,
        (dx, dbias),
        (dy,),
        (code.contiguous(),),
        unit=VECTOR_BYTES // dy.itemsize,
        numbers=(factor_of(p),),
    )
