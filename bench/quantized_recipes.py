"""The recipes of ``python -m bench.quantized``: what shares a scale, in plain PyTorch as one writes
it, and by this package."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import pad

from gelu_kernels.functional.scale_layout import BLOCKS

FLOAT8, LARGEST = torch.float8_e4m3fn, 448.0
Pair = tuple[Tensor, Tensor]  # data and scales


@dataclass(frozen=True)
class Recipe:
    scaling: str
    along: str = "row"
    mode: str = "amax"

    @property
    def written(self) -> float:
        """Bytes for a number of a result, without the scales of a tensor, a row or a column."""
        of_scale = 1 if self.scaling == "BlockWise1x32" else 4
        scales = of_scale / BLOCKS[self.scaling] if self.scaling in BLOCKS else 0
        return (2 if self.along == "both" else 1) * (1 + scales)

    @property
    def reads(self) -> int:
        """How often the inputs are read: a column's amax is known after its last row."""
        return 2 if self.scaling == "RowWise" and self.along != "row" else 1

    def options(self, scale: Tensor) -> dict[str, object]:
        if self.scaling == "TensorWise":
            return {"scaling": self.scaling, "scale": scale}
        return {"scaling": self.scaling, "along": self.along, "mode": self.mode}


RECIPES = {
    "TensorWise": Recipe("TensorWise"),
    "RowWise": Recipe("RowWise"),
    "RowWise column": Recipe("RowWise", "column"),
    "RowWise both": Recipe("RowWise", "both"),
    "BlockWise1x128": Recipe("BlockWise1x128"),
    "BlockWise1x128 column": Recipe("BlockWise1x128", "column"),
    "BlockWise1x128 both": Recipe("BlockWise1x128", "both"),
    "BlockWise1x128 both rceil": Recipe("BlockWise1x128", "both", "rceil"),
    # MX
    "row": Recipe("BlockWise1x32", "row", "floor"),
    "column": Recipe("BlockWise1x32", "column", "floor"),
    "both": Recipe("BlockWise1x32", "both", "floor"),
}


def rounded(t: Tensor) -> Tensor:
    return t.clamp(-LARGEST, LARGEST).to(FLOAT8)


def cast(y: Tensor, recipe: Recipe) -> Pair:
    """Along the rows, whose numbers are finite and not all zero."""
    blocks = y.unflatten(-1, (-1, BLOCKS.get(recipe.scaling, y.shape[-1])))
    amax = blocks.abs().amax(-1, keepdim=True).float()
    if recipe.mode == "amax":
        scale, inverse = amax / LARGEST, LARGEST / amax
    else:
        up = 0x1FFFFF if recipe.mode == "rceil" else 0
        code = (((amax.view(torch.int32) + up) >> 23) - 8).clamp(0, 254)
        inverse = ((254 - code) << 23).view(torch.float32)
        # Inductor has no float8_e8m0fnu on a CPU.
        is_mx = recipe.scaling == "BlockWise1x32"
        scale = code.to(torch.uint8) if is_mx else (code << 23).view(torch.float32)
    return rounded(blocks.float() * inverse).flatten(-2), scale.squeeze(-1)


def cast_groups(y: Tensor, recipe: Recipe, offsets: Tensor) -> Pair:
    """Along the columns of each group of rows, with zeros that fill its last block."""
    pairs = []
    for start, end in pairwise([0, *offsets.tolist()]):
        columns = y[start:end].t().contiguous()
        data, scale = cast(pad(columns, (0, (start - end) % BLOCKS.get(recipe.scaling, 1))), recipe)
        pairs.append((data[:, : end - start], scale))
    data, scales = zip(*pairs, strict=True)
    return torch.cat(data, 1), torch.cat(scales, 1)


def chain(y: Tensor, recipe: Recipe, scale: Tensor, offsets: Tensor | None) -> tuple[Tensor, ...]:
    """As one writes it."""
    if recipe.scaling == "TensorWise":
        return rounded(y.float() * (1 / scale)), y.abs().amax().float()
    results = cast(y, recipe) if recipe.along != "column" else ()
    if recipe.along == "row":
        return results
    if offsets is None:
        return (*results, *cast(y.t().contiguous(), recipe))
    return (*results, *cast_groups(y, recipe, offsets))
