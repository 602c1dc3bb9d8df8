"""Quantised tensors by the text of the specifications, in float64.

OCP, "8-bit Floating Point Specification" 1.0 (2023), and "Microscaling Formats (MX) Specification"
1.0 (2023), sections 5.2, 5.3 and 6.3; cuBLAS, "1D Block Quantization", for the mode rceil.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

# The largest number of a format, its bits of mantissa, and its least normal number's exponent.
FORMATS = {torch.float8_e4m3fn: (448.0, 3, -6), torch.float8_e5m2: (57344.0, 2, -14)}
BLOCKS = {"BlockWise1x128": 128, "BlockWise1x32": 32}


def rounded(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """To the nearest number of the format, ties to even, the largest beyond it."""
    largest, mantissa, least = FORMATS[dtype]
    exponent = torch.frexp(numbers).exponent - 1  # of the leading bit
    unit = torch.ldexp(torch.ones_like(numbers), exponent.clamp(min=least) - mantissa)
    nearest = (numbers / unit).round() * unit  # half to even
    return torch.where(numbers.isinf(), numbers, nearest).clamp(-largest, largest)


@dataclass
class Expected:
    numbers: Tensor  # float64, NaN for any NaN
    scales: Tensor  # likewise; or the exponents' codes


def power_of_two(amax: Tensor, dtype: torch.dtype, mode: str) -> Tensor:
    """The codes of the scales, 2^(code - 127); 255 is NaN."""
    largest, _, _ = FORMATS[dtype]
    if mode == "floor":
        exponent = torch.frexp(amax).exponent - torch.frexp(torch.tensor(largest)).exponent
    else:
        fraction, exponent = torch.frexp(amax / largest)
        exponent = exponent - (fraction == 0.5).int()  # 2^n = 0.5 * 2^(n + 1)
    code = (exponent + 127).clamp(0, 254)
    code[amax == 0] = 0
    # An infinity counts as the power of two after the largest finite one.
    infinite = 255 - (8 if largest == 448 else 15) if mode == "floor" else 254
    code[amax.isinf()] = infinite
    code[amax.isnan()] = 255
    return code


def blocks_of(y: Tensor, scaling: str) -> Tensor:
    """The last dimension is a block."""
    if scaling == "TensorWise":
        return y.reshape(1, -1)
    return y.unflatten(-1, (-1, BLOCKS.get(scaling, y.shape[-1])))


def quantised(
    y: Tensor, dtype: torch.dtype, scaling: str, mode: str, scale: float | None = None
) -> Expected:
    """y along its last dimension, with products in float32."""
    largest, _, _ = FORMATS[dtype]
    blocks = blocks_of(y.double(), scaling)
    amax = blocks.abs().amax(-1)  # NaN wins
    if scaling == "BlockWise1x32":
        code = power_of_two(amax, dtype, mode)
        # The numbers of a block with a NaN mean nothing; here they are torchao's.
        of_nan = 0.0 if mode == "floor" else torch.nan
        inverse = torch.ldexp(torch.ones_like(amax), 127 - code)
        scales, inverse = code, torch.where(code == 255, of_nan, inverse)
    elif scaling == "TensorWise":
        scales = amax.view(())
        inverse = torch.tensor(1 / scale).float().double()
    else:
        scales = (amax / largest).float().double().clamp(min=2.0**-126)
        scales[amax.isnan()] = torch.nan
        inverse = torch.where(scales > 2.0**-126, (largest / amax).float().double(), 2.0**126)
        inverse[amax.isnan()] = torch.nan
    products = (blocks * inverse.unsqueeze(-1)).float().double()
    return Expected(rounded(products, dtype).reshape(y.shape), scales)


def unswizzled(scales: Tensor, rows: int, columns: int) -> Tensor:
    """As cuBLAS, "1D Block Scaling Factors Layout", has the place of the scale of (row, column)."""
    row = torch.arange(rows).unsqueeze(1)
    column = torch.arange(columns).unsqueeze(0)
    tile = row // 128 * (-(-columns // 4)) + column // 4
    place = tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + column % 4
    return scales.view(torch.uint8).flatten()[place]
