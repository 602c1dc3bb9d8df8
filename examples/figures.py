"""Draws docs/guide/figures.png: gates and their relatives, as in the GELU paper
(https://arxiv.org/abs/1606.08415).

    Figure 1: the GELU, the ReLU and the ELU with alpha = 1.
    Section 4: the ELU with alpha = 1/pi and the gate of the Cauchy distribution, which meet for
        x -> -inf, and for x -> inf once the ELU's line is shifted down by 1/pi.
    Figure 8: the normal and the logistic distribution function.
"""

import argparse
import io
import math
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from torch.nn.functional import elu, relu

from gelu_kernels import functional

PLOT = Path(__file__).parent.parent / "docs" / "guide" / "figures.png"
ALPHA = 1 / math.pi


def cauchy_apart(x: float) -> float:
    """How far the Cauchy gate at x is from the ELU, shifted by 1/pi for x > 0."""
    number = torch.tensor(x, dtype=torch.float64)
    shift = ALPHA if x > 0 else 0.0
    gate = functional.gate(number, gate="cauchy")
    return (gate - (elu(number, ALPHA) - shift)).abs().item()


def largest_difference(slope: float) -> float:
    """Of the normal distribution function and sigmoid(slope x)."""
    x = torch.linspace(-8, 8, 100_001, dtype=torch.float64)
    return (torch.special.ndtr(x) - torch.sigmoid(slope * x)).abs().max().item()


def draw_rectifiers(axes: Axes) -> None:
    x = torch.linspace(-4, 3, 701)
    axes.plot(x, functional.gelu(x), label="GELU")
    axes.plot(x, relu(x), label="ReLU")
    axes.plot(x, elu(x), label="ELU, α = 1")
    axes.set(title="Figure 1", ylim=(-1.1, 3))


def draw_cauchy(axes: Axes) -> None:
    x = torch.linspace(-10, 4, 701)
    y = elu(x, ALPHA)
    axes.plot(x, functional.gate(x, gate="cauchy"), label="Cauchy gate")
    axes.plot(x, y, label="ELU, α = 1/π")
    axes.plot(x[x > 0], (y - ALPHA)[x > 0], "--", color="C1", label="ELU - 1/π")
    axes.axhline(-ALPHA, color="black", linewidth=0.5)
    axes.set(title="The ELU's relative", ylim=(-0.5, 2.5))


def draw_distributions(axes: Axes) -> None:
    x = torch.linspace(-6, 6, 601)
    axes.plot(x, torch.special.ndtr(x), label="normal")
    axes.plot(x, torch.sigmoid(x), label="logistic")
    axes.plot(x, torch.sigmoid(1.702 * x), ":", label="sigmoid(1.702 x)")
    axes.set(title="Figure 8")


def plot() -> Figure:
    figure = Figure(figsize=(9, 3), layout="constrained")
    drawings = (draw_rectifiers, draw_cauchy, draw_distributions)
    for axes, draw in zip(figure.subplots(ncols=3), drawings, strict=True):
        draw(axes)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="upper left")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description="Draws figures of the GELU paper.")
    parser.add_argument("--output", type=Path, default=PLOT)
    path = parser.parse_args().output

    for x in (-10.0, -100.0, 10.0, 100.0):
        print(f"Cauchy gate and ELU at {x:6.0f}: {cauchy_apart(x):.1e} apart")
    for slope in (1.0, 1.702):
        print(f"normal and sigmoid({slope} x): at most {largest_difference(slope):.4f} apart")

    drawn = io.BytesIO()
    plot().savefig(drawn, dpi=90)
    Image.open(drawn).convert("RGB").quantize(16).save(path, optimize=True)


if __name__ == "__main__":
    main()
