"""Results with one scale, which the caller gives (TensorWise)."""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.quantized.float8 import (
    inverse_of_given,
    magnitude_bits,
    to_float8,
)
from gelu_kernels.triton_kernels.quantized.results import results_at
from gelu_kernels.triton_kernels.tile import inside, origin, tile


@triton.jit
def quantize_tiles(
    data,
    amax,
    scale,
    x,
    up,
    dy,
    bias,
    weight,
    limit,
    up_offset,
    rows,
    columns,
    x_row,
    up_row,
    dy_row,
    VALUE: tl.constexpr,
    DERIVATIVE: tl.constexpr,
    C: tl.constexpr,
    R: tl.constexpr,
):
    """`amax` receives the bits of the largest magnitude."""
    row, column = origin(R.rows, R.columns, R.columns_first)
    inputs = (x, up, dy, bias, weight, limit, up_offset, x_row, up_row, dy_row)
    y, _ = results_at(inputs, row, column, rows, columns, VALUE, DERIVATIVE, C, R)
    mask = inside(row, column, rows, columns, R.rows, R.columns)
    numbers = to_float8(y * inverse_of_given(tl.load(scale)), R.is_e5m2, C)
    tl.atomic_max(amax, tl.max(tl.where(mask, magnitude_bits(y), 0)), sem="relaxed")
    tl.store(tile(data, columns, 1, row, column, R.rows, R.columns), numbers, mask)
