"""``python -m bench.accuracy``: draws docs/guide/accuracy.png, the errors of our GELU and F.gelu.

They are in units in the last place (ULP), against mpmath.
"""

import io

import mpmath
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from bench.runs import ROOT
from gelu_kernels import functional

X_MIN, X_MAX, POINTS = -14.0, 6.0, 1201
DIGITS = 40
PLOT = ROOT / "docs" / "guide" / "accuracy.png"
SIDES = {"F.gelu": (F.gelu, "#e07b1f"), "gelu_kernels": (functional.gelu, "#1f5fa8")}


def exact(x: Tensor) -> list[mpmath.mpf]:
    with mpmath.workdps(DIGITS):
        return [mpmath.mpf(v) * mpmath.ncdf(v) for v in x.tolist()]


def ulp_errors(y: Tensor, right: list[mpmath.mpf]) -> list[float]:
    """In spacings of floats at the exact value; below the normal numbers, of the smallest one."""
    tiny, eps = torch.finfo(y.dtype).tiny, torch.finfo(y.dtype).eps
    errors = []
    with mpmath.workdps(DIGITS):
        for result, value in zip(y.double().tolist(), right, strict=True):
            ulp = eps * mpmath.mpf(2) ** mpmath.floor(mpmath.log(max(abs(value), tiny), 2))
            errors.append(float(abs(mpmath.mpf(result) - value) / ulp))
    return errors


def plot() -> Figure:
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    for axes, dtype in zip(figure.subplots(ncols=2), (torch.float32, torch.bfloat16), strict=True):
        # An even step would fall on numbers that are exact in 16 bits.
        x = torch.linspace(X_MIN, X_MAX, POINTS, dtype=torch.float64).to(dtype)
        right = exact(x.double())
        for name, (gelu, color) in SIDES.items():
            errors = ulp_errors(gelu(x), right)
            axes.plot(x.tolist(), errors, ".", markersize=3, label=name, color=color)
        axes.set(
            title=f"error of GELU(x) in {str(dtype).removeprefix('torch.')}, ULP",
            xlabel="x",
            xticks=range(-14, 7, 4),
            yscale="symlog",
            ylim=(0, None),
        )
        axes.axhline(0.5, color="black", linewidth=0.8)  # of correct rounding
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def main() -> None:
    drawn = io.BytesIO()
    plot().savefig(drawn, dpi=90)
    image = Image.open(drawn).convert("RGB").quantize(16)  # a quarter of the bytes
    image.save(PLOT, optimize=True)


if __name__ == "__main__":
    main()
