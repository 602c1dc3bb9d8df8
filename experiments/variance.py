"""The variance of a prediction under random masks: section 4 of the GELU paper.

A linear layer predicts Y = sum w x m, with a mask m of zeros and ones that keeps x with probability
p. The variance of Y is sum w^2 x^2 p (1 - p). Dropout has a constant p, so its variance grows with
x; the SOI map has p = Phi(x), which dampens it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import dropout
from torch.special import ndtr

from bench.markdown import table
from experiments.page import SECTION, write_csv
from experiments.plots import empty
from gelu_kernels.functional import soi_map

INPUTS, BATCH = 128, 2**12
SCALES = [2 ** (half / 2) for half in range(-4, 7)]
KEEP, LOC, SCALE = 0.5, 1.0, 2.0
DROPOUT = f"dropout p={KEEP}"


class Mask(NamedTuple):
    """A way to draw m x, and the probability that m is 1."""

    draw: Callable[[Tensor], Tensor]
    probability: Callable[[Tensor], Tensor]


MASKS = {
    # torch's dropout divides by p; the paper's mask is of zeros and ones.
    DROPOUT: Mask(lambda x: KEEP * dropout(x, 1 - KEEP), lambda x: torch.full_like(x, KEEP)),
    "soi": Mask(soi_map, ndtr),
    "cdf_gate": Mask(lambda x: soi_map(x, loc=LOC, scale=SCALE), lambda x: ndtr((x - LOC) / SCALE)),
}


class Row(NamedTuple):
    mask: str
    scale: float
    measured: float
    formula: float
    standard_error: float
    z: float


def variance(mask: Mask, x: Tensor, w: Tensor) -> float:
    """The paper's formula, in float64."""
    x = x.double()
    p = mask.probability(x)
    return (w**2 * x**2 * p * (1 - p)).sum().item()


def sample_variance(y: Tensor) -> tuple[float, float]:
    """The unbiased variance of y and its standard error, by the fourth central moment."""
    n, fourth = len(y), (y - y.mean()).pow(4).mean()
    measured = y.var()
    return measured.item(), ((fourth - measured**2 * (n - 3) / (n - 1)) / n).sqrt().item()


def measure(
    activations: Sequence[str],
    draws: int,
    seed: int,
    device: torch.device,
    progress: Callable[[], None] = lambda: None,
) -> list[Row]:
    """A row for dropout and each of `activations` at each of `SCALES`; `progress` after each."""
    possible = [name for name in MASKS if name != DROPOUT]
    for name in activations:
        if name not in possible:
            raise ValueError(f"activations: {name!r} is not one of {', '.join(possible)}")
    rows = []
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)  # dropout takes no generator
        z, w = torch.randn(2, INPUTS).to(device)
        w = w.double()
        for name in (DROPOUT, *activations):
            mask = MASKS[name]
            for scale in SCALES:
                x = scale * z
                parts = x.expand(draws, -1).split(BATCH)
                y = torch.cat([mask.draw(part).double() @ w for part in parts])
                measured, error = sample_variance(y)
                formula = variance(mask, x, w)
                rows.append(
                    Row(name, scale, measured, formula, error, (measured - formula) / error)
                )
                progress()
    return rows


def plot(rows: Sequence[Row]) -> Figure:
    figure, (axes,) = empty(["Variance of a prediction"])
    for i, name in enumerate(dict.fromkeys(row.mask for row in rows)):
        of_mask = [row for row in rows if row.mask == name]
        _, scales, measured, formula, errors, _ = zip(*of_mask, strict=True)
        axes.plot(scales, formula, color=f"C{i}", label=f"{name}, formula")
        axes.errorbar(scales, measured, errors, fmt="o", color=f"C{i}", label=f"{name}, measured")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set(xlabel="scale of x", ylabel="variance")
    axes.legend(frameon=False)
    return figure


def section(rows: Sequence[Row], draws: int) -> str:
    """The section of the page, with three scales that show which variance grows and which not."""
    scales = (0.5, 2.0, 8.0)
    found = {(row.mask, row.scale): row for row in rows}
    lines = []
    for name in dict.fromkeys(row.mask for row in rows):
        cells = [found[name, scale] for scale in scales]
        worst = max(abs(row.z) for row in rows if row.mask == name)
        pairs = (f"{row.measured:.4g} ({row.formula:.4g})" for row in cells)
        lines.append([name, *pairs, f"{worst:.1f}"])
    header = ["mask", *(f"x of scale {scale:g}" for scale in scales), "largest z"]
    return (
        "## The variance of a prediction\n\n"
        "The paper's section 4. As x grows, so does the variance of a prediction under dropout; "
        "the SOI map dampens it. `python -m experiments variance`\n\n"
        f"One linear layer of {INPUTS} inputs, {draws} masks. Measured, and in brackets by the "
        f"paper's formulas; z is the difference in standard errors, at {len(SCALES)} scales. The "
        f"CDF gate has the location {LOC:g} and the scale {SCALE:g}.\n\n"
        f"{table(header, lines)}\n![variance](variance/variance.png)\n"
    )


def write(rows: Sequence[Row], draws: int, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / "results.csv", [row._asdict() for row in rows])
    plot(rows).savefig(folder / "variance.png", dpi=100)
    (folder / SECTION).write_text(section(rows, draws))
