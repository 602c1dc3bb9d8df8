"""Curves of training, and of errors under noise: medians over the seeds, with their range."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.activations import ACTIVATIONS
from experiments.recipe import Recipe
from experiments.results import Spread, Variant, groups

COLOURS = {name: f"C{index}" for index, name in enumerate(ACTIVATIONS)}
WIDTH, HEIGHT = 5.0, 3.6


def empty(panels: Sequence[str]) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(WIDTH * len(panels), HEIGHT), layout="constrained")
    found = figure.subplots(ncols=len(panels), squeeze=False)[0]
    for axes, title in zip(found, panels, strict=True):
        axes.set_title(title)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, list(found)


def draw(axes: Axes, x: Sequence[float], values: list[Spread], **style: object) -> None:
    axes.plot(x, [value.median for value in values], **style)
    low, high = ([getattr(value, name) for value in values] for name in ("low", "high"))
    axes.fill_between(x, low, high, color=style["color"], alpha=0.1, linewidth=0)


def training(recipe: Recipe, variants: list[Variant]) -> Figure:
    """Dark curves show the first column of `recipe.curves`, light ones the second."""
    found = groups(recipe, variants)
    figure, panels = empty(list(found))
    dark, light = recipe.curves
    for axes, group in zip(panels, found.values(), strict=True):
        for variant in group:
            epochs = range(1, len(variant.curve(dark)) + 1)
            style = {"color": COLOURS[variant.activation]}
            draw(axes, epochs, variant.curve(light), alpha=0.35, linewidth=1, **style)
            draw(axes, epochs, variant.curve(dark), label=variant.label, **style)
        axes.set(xlabel="epoch", ylabel=f"{dark}; light: {light}".replace("_", " "))
        if dark.endswith("loss"):
            axes.set_yscale("log")
        axes.legend(frameon=False, fontsize="small")
    return figure


def robustness(recipe: Recipe, variants: list[Variant]) -> Figure:
    """Test error and loss under noise, for the networks trained without dropout."""
    figure, panels = empty(["test error, %", "test log loss"])
    for variant in variants:
        if variant.keep != 1:
            continue
        style = {"color": COLOURS[variant.activation], "label": variant.label}
        error, loss = (variant.curve(f"test_{of}", "robustness") for of in ("error", "loss"))
        draw(panels[0], recipe.noise, [Spread(*(100 * e for e in s)) for s in error], **style)
        draw(panels[1], recipe.noise, loss, **style)
    for axes in panels:
        axes.set_xlabel("a, of Unif[-a, a] added to the inputs")
    panels[0].legend(frameon=False, fontsize="small")
    return figure
