"""Trains an MLP on real handwritten digits with all products in MXFP8, and one in bfloat16.

The MLP is that of eight_bit_mlp.py; each 32 numbers have a scale, a power of two.

On a GPU of compute capability 10.0 or newer ``torch.nn.functional.scaled_mm`` multiplies. Nobody
has run that yet. Elsewhere the products are emulated: the same numbers, dequantised, in float32.
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch
from eight_bit_mlp import EightBitMLP, Recipe, bfloat16_mlp, in_blocks, train
from torch import Tensor
from torch.nn.functional import ScalingType, SwizzleType, pad, scaled_mm

from gelu_kernels import functional
from gelu_kernels.functional import Quantized

# Multiples of 32: there are more logits than classes.
PIXELS, HIDDEN, LOGITS = 64, 256, 32
SHAPES: list[tuple[int, ...]] = [(2 * HIDDEN, PIXELS), (LOGITS, HIDDEN)]


def swizzle_for(t: Tensor) -> SwizzleType:
    """As the products on t's device take the scales."""
    has_mx = t.is_cuda and torch.cuda.get_device_capability(t.device) >= (10, 0)
    return SwizzleType.SWIZZLE_32_4_4 if has_mx else SwizzleType.NO_SWIZZLE


def swizzled(scales: Tensor) -> Tensor:
    """Tiles of 128 rows of 4, in which the rows r, r + 32, r + 64 and r + 96 are side by side."""
    rows, columns = scales.shape
    whole = pad(scales, (0, -columns % 4, 0, -rows % 128))
    tiles = whole.unflatten(0, (-1, 4, 32)).unflatten(-1, (-1, 4)).permute(0, 3, 2, 1, 4)
    return tiles.reshape(whole.size(0) // 4, -1)


def quantised(t: Tensor) -> Quantized:
    """Finite numbers in MXFP8 along the rows, for a tensor that no gate makes."""
    data, exponents = in_blocks(t, 32, least=0)
    scales = exponents.to(torch.uint8)
    if swizzle_for(t) != SwizzleType.NO_SWIZZLE:
        scales = swizzled(scales)
    return Quantized(data, scales.contiguous().view(torch.float8_e8m0fnu))


def product(a: Quantized, b: Quantized) -> Tensor:
    """Of a and the transpose of b: it sums over their rows, along which their blocks lie."""
    swizzle = swizzle_for(a.data)
    if swizzle == SwizzleType.NO_SWIZZLE:
        x, y = (functional.dequantize(*operand, dtype=torch.float32) for operand in (a, b))
        return (x @ y.t()).bfloat16()
    kind = ScalingType.BlockWise1x32
    return scaled_mm(a.data, b.data.t(), a.scale, kind, b.scale, kind, swizzle, swizzle)


def options(t: Tensor) -> dict[str, Any]:
    return {"mode": "rceil", "swizzle": swizzle_for(t)}


RECIPE = Recipe(quantised, product, options)


def mxfp8_mlp(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    return EightBitMLP.apply(x, gate_up, down, RECIPE)


MLPS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "MXFP8": mxfp8_mlp,
    "bfloat16": bfloat16_mlp,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", type=torch.device, help="default: a GPU if there is one")
    args = parser.parse_args()

    torch.set_num_threads(1)  # on a CPU, layers this small are no faster with more
    device = args.device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    runs = [train(mlp, SHAPES, args.epochs, args.seed, device) for mlp in MLPS.values()]
    ratio = float("nan")
    for epoch, results in enumerate(zip(*runs, strict=True), start=1):
        shown = (
            f"{name} loss {loss:.4f}, test {accuracy:.2%}"
            for name, (loss, accuracy) in zip(MLPS, results, strict=True)
        )
        print(f"epoch {epoch}: " + "; ".join(shown), flush=True)
        (ours, _), (theirs, _) = results
        ratio = ours / theirs
    print(f"the loss in MXFP8 is {ratio:.3f} times bfloat16's")


if __name__ == "__main__":
    main()
