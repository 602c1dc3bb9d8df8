"""FP8 in blocks of 128 numbers of a row, each with a scale: the recipe of DeepSeek-V3 with scales
that are powers of two, as Transformer Engine has it by default. Matrices, their products, and the
products of groups of rows."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from eight_bit_mlp import Recipe, in_blocks
from torch import Tensor
from torch.nn.functional import ScalingType, pad, scaled_mm

from gelu_kernels.functional import Quantized

BLOCK = 128
OPTIONS: dict[str, Any] = {"scaling": "BlockWise1x128", "mode": "rceil"}


def has_products(t: Tensor) -> bool:
    """cuBLAS multiplies such blocks on Hopper, and on no other GPU."""
    return t.is_cuda and torch.cuda.get_device_capability(t.device)[0] == 9


def quantised(t: Tensor) -> Quantized:
    """Finite numbers along the rows, for a tensor that no gate makes."""
    data, exponents = in_blocks(t, BLOCK, least=1)  # a scale is a normal float
    scales = (exponents << 23).view(torch.float32)
    # scaled_mm takes the scales column by column.
    return Quantized(data, scales.t().contiguous().t())


def emulated(a: Quantized, b: Quantized) -> Tensor:
    """In float32: the sums over each block, then the sum of their multiples."""
    x, y = (of.data.float().unflatten(-1, (-1, BLOCK)).transpose(0, 1) for of in (a, b))
    sums = x @ y.transpose(1, 2)
    sums *= a.scale.t().unsqueeze(2)
    sums *= b.scale.t().unsqueeze(1)
    return sums.sum(0).bfloat16()


def product(a: Quantized, b: Quantized) -> Tensor:
    """Of a and the transpose of b: it sums over their rows, along which their blocks lie."""
    if not has_products(a.data) or a.data.numel() == 0:  # a group may be empty
        return emulated(a, b)
    kind = ScalingType.BlockWise1x128
    return scaled_mm(a.data, b.data.t(), a.scale, kind, b.scale, kind)


RECIPE = Recipe(quantised, product, lambda t: OPTIONS)


def rows_of_groups(of: Quantized, ends: list[int]) -> Iterator[Quantized]:
    """The rows of each group as a matrix of its own, with scales column by column. Zeros make it
    a multiple of 16 rows: cuBLAS reads the scales of several rows at a time."""
    for start, end in pairwise([0, *ends]):
        more = (start - end) % 16
        scales = pad(of.scale.t()[:, start:end], (0, more))
        scales = scales.clone(memory_format=torch.contiguous_format)
        yield Quantized(pad(of.data[start:end], (0, 0, 0, more)), scales.t())


def columns_of_groups(of: Quantized, ends: list[int]) -> Iterator[Quantized]:
    """The columns of each group as a matrix of whole blocks. The scales are those of the group's
    blocks as they come; the last block may have fewer numbers, and gets zeros."""
    first = 0
    for start, end in pairwise([0, *ends]):
        data = pad(of.data[:, start:end], (0, (start - end) % BLOCK))
        last = first + data.size(1) // BLOCK
        yield Quantized(data, of.scale[:, first:last])
        first = last
