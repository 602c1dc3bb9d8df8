"""Quantised tensors by the text of the specifications, in float64.

OCP, "8-bit Floating Point Specification" 1.0 (2023), and "Microscaling Formats (MX) Specification"
1.0 (2023), sections 5.2, 5.3 and 6.3; cuBLAS, "1D Block Quantization", for the mode rceil, and "1D
Block Scaling Factors Layout". Groups and packed exponents are as docs/guide/low_precision.md has
them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

# The largest number of a format, its bits of mantissa, and its least normal number's exponent.
FORMATS = {torch.float8_e4m3fn: (448.0, 3, -6), torch.float8_e5m2: (57344.0, 2, -14)}
BLOCKS = {"BlockWise1x128": 128, "BlockWise1x32": 32}
LEAST = 2.0**-126  # of the scales that are floats

Ends = Sequence[int] | None  # of the groups of rows


class Recipe(NamedTuple):
    """Everything that the scales depend on besides the numbers."""

    scaling: str
    mode: str = "amax"
    swizzle: str = "NO_SWIZZLE"
    packed: bool = False

    @property
    def is_swizzled(self) -> bool:
        return self.swizzle != "NO_SWIZZLE"


@dataclass
class Expected:
    numbers: Tensor  # float64, NaN for any NaN
    scales: Tensor  # float64; of powers of two the codes, 2^(code - 127), and 255 for NaN


def rounded(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """To the nearest number of the format, ties to even, the largest beyond it."""
    largest, mantissa, least = FORMATS[dtype]
    exponent = torch.frexp(numbers).exponent - 1  # of the leading bit
    unit = torch.ldexp(torch.ones_like(numbers), exponent.clamp(min=least) - mantissa)
    nearest = (numbers / unit).round() * unit  # half to even
    return torch.where(numbers.isinf(), numbers, nearest).clamp(-largest, largest)


def power_of_two(amax: Tensor, dtype: torch.dtype, mode: str, least: int = 0) -> Tensor:
    """The codes of the scales."""
    largest, _, _ = FORMATS[dtype]
    if mode == "floor":
        exponent = torch.frexp(amax).exponent - torch.frexp(torch.tensor(largest)).exponent
    else:
        fraction, exponent = torch.frexp(amax / largest)
        exponent = exponent - (fraction == 0.5).int()  # 2^n = 0.5 * 2^(n + 1)
    code = (exponent + 127).clamp(least, 254)
    code[amax == 0] = least
    # An infinity counts as the power of two after the largest finite one.
    infinite = 255 - (8 if largest == 448 else 15) if mode == "floor" else 254
    code[amax.isinf()] = infinite
    code[amax.isnan()] = 255
    return code


def scales_of(amax: Tensor, dtype: torch.dtype, scaling: str, mode: str) -> tuple[Tensor, Tensor]:
    """The scales, and the factors of the numbers, which are float32."""
    largest, _, _ = FORMATS[dtype]
    if mode != "amax":
        is_mx = scaling == "BlockWise1x32"
        code = power_of_two(amax, dtype, mode, least=0 if is_mx else 1)
        # The numbers of an MX block with a NaN mean nothing; here they are torchao's.
        of_nan = 0.0 if is_mx and mode == "floor" else torch.nan
        inverse = torch.ldexp(torch.ones_like(amax), 127 - code)
        return code.double(), torch.where(code == 255, of_nan, inverse)
    scales = (amax / largest).float().double().clamp(min=LEAST)
    inverse = torch.where(scales > LEAST, (largest / amax).float().double(), 1 / LEAST)
    is_nan = amax.isnan()
    return scales.masked_fill(is_nan, torch.nan), inverse.masked_fill(is_nan, torch.nan)


def blocks_along(length: int, scaling: str, ends: Ends) -> list[tuple[int, int]]:
    """Where blocks begin and end: anew in each group, whose last one may be short."""
    found, begin = [], 0
    for end in [length] if ends is None else ends:
        if scaling == "RowWise":
            found.append((begin, end))  # even of a group of no rows
        else:
            block = BLOCKS[scaling]
            found += [(i, min(i + block, end)) for i in range(begin, end, block)]
        begin = end
    return found


def quantised(
    y: Tensor, dtype: torch.dtype, scaling: str, mode: str, ends: Ends = None
) -> Expected:
    """y along its last dimension, up to the end of the last group, with products in float32."""
    blocks = blocks_along(y.shape[-1], scaling, ends)
    # A zero changes no largest magnitude, and NaN wins.
    largest = [
        torch.nn.functional.pad(y[..., i:j].double().abs(), (0, 1)).amax(-1) for i, j in blocks
    ]
    amax = torch.stack(largest, -1) if blocks else y.new_empty(*y.shape[:-1], 0).double()
    scales, inverse = scales_of(amax, dtype, scaling, mode)
    lengths = torch.tensor([j - i for i, j in blocks], dtype=torch.int64)
    inverse = inverse.repeat_interleave(lengths, -1)
    products = (y[..., : inverse.shape[-1]].double() * inverse).float().double()
    return Expected(rounded(products, dtype), scales)


def with_given_scale(y: Tensor, dtype: torch.dtype, scale: Tensor) -> Expected:
    """By TensorWise; in the place of scales is amax."""
    inverse = (1 / scale.double()).float().double()
    numbers = rounded((y.double() * inverse).float().double(), dtype)
    return Expected(numbers, y.double().abs().amax())


# The same in memory


def bytes_of(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """Every NaN is 0x7f."""
    is_nan = numbers.isnan()
    codes = numbers.masked_fill(is_nan, 0).float().to(dtype).view(torch.uint8)  # exact
    return codes.masked_fill(is_nan, 0x7F)


def swizzled(codes: Tensor) -> Tensor:
    """Tiles of 128 rows of 4 scales, one after the other, row by row. The scale of row r and column
    c of a tile is byte (r % 32) * 16 + (r / 32) * 4 + c, as cuBLAS has it."""
    rows, columns = codes.shape
    row, column = torch.arange(rows).unsqueeze(1), torch.arange(columns).unsqueeze(0)
    tiles = -(-columns // 4)
    tile = row // 128 * tiles + column // 4
    place = tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + column % 4
    to = torch.zeros(-(-rows // 128) * tiles * 512, dtype=torch.uint8)
    to[place] = codes.to(torch.uint8)
    return to


def unswizzled(scales: Tensor, rows: int, columns: int) -> Tensor:
    """The other way round, by the shape of the tiles."""
    in_tiles = scales.view(torch.uint8).view(-(-rows // 128), -(-columns // 4), 32, 4, 4)
    return in_tiles.permute(0, 3, 2, 1, 4).flatten(3).flatten(0, 2)[:rows, :columns]


def packed(codes: Tensor) -> Tensor:
    """Four bytes in an int32, the first lowest; what is left in the last is 0."""
    padded = torch.nn.functional.pad(codes.long(), (0, -codes.shape[-1] % 4)).unflatten(-1, (-1, 4))
    words = (padded * 256 ** torch.arange(4)).sum(-1)
    return torch.where(words < 2**31, words, words - 2**32).int()


def stored(scales: Tensor, recipe: Recipe) -> Tensor:
    """Without swizzle, and without room that is not used."""
    if recipe.packed:
        return packed(scales)
    if recipe.scaling == "BlockWise1x32":
        return scales.to(torch.uint8)
    if recipe.mode == "amax":
        return scales.float()
    return torch.where(scales == 255, torch.nan, torch.exp2(scales - 127)).float()


def swizzled_rows(codes: Tensor, ends: Ends) -> Tensor:
    """The tiles of each group begin anew."""
    sizes = [j - i for i, j in zip([0, *ends], ends, strict=False)] if ends else [len(codes)]
    return torch.cat([swizzled(group) for group in codes.split(sizes)])


def swizzled_columns(codes: Tensor, ends: Ends) -> Tensor:
    """The blocks of each group are a matrix of their own."""
    sizes = [codes.shape[1]]
    if ends:
        sizes = [-(-(j - i) // 32) for i, j in zip([0, *ends], ends, strict=False)]
    return torch.cat([swizzled(group) for group in codes.split(sizes, dim=1)])
