"""Says in words how the results here compare with the paper's claims."""

import operator
from collections.abc import Callable, Mapping

from experiments.recipe import KEEPS_BESIDE_SOI, Recipe
from experiments.results import Spread, Variant, groups

Show = Callable[[Spread], str]


def percent(spread: Spread) -> str:
    return shown([f"{100 * value:.2f}" for value in spread])


def number(spread: Spread) -> str:
    return shown([f"{value:.3g}" for value in spread])


def shown(values: list[str]) -> str:
    median, low, high = values
    return median if low == high else f"{median} ({low} to {high})"


def named(variant: Variant) -> str:
    return variant.label if variant.keep == 1 else f"{variant.label}, keep {variant.keep:g}"


def ranking(what: str, found: Mapping[str, Spread], show: Show) -> str:
    """Which is lowest, and whether the ranges of the seeds overlap."""
    ordered = sorted(found.items(), key=lambda item: item[1].median)
    listed = "; ".join(f"{name} {show(spread)}" for name, spread in ordered)
    lowest = ordered[0][1]
    names = [name for name, spread in ordered if spread.median == lowest.median]
    if len(names) > 1:
        return f"- {what}: **{' and '.join(names)}** are equally low. {listed}."
    apart = all(lowest.high < spread.low for _, spread in ordered[1:])
    doubt = "below every seed of the others" if apart else "within the seeds' range"
    return f"- {what}: **{names[0]}** is lowest, {doubt}. {listed}."


def by_group(recipe: Recipe, variants: list[Variant]) -> list[str]:
    lines = []
    for title, group in groups(recipe, variants).items():
        if len(group) < 2:
            continue
        losses = {v.label: v.last("train_loss") for v in group}
        lines.append(ranking(f"Training loss, {title}", losses, number))
        if recipe.classifies:
            errors = {v.label: v.best("test_error") for v in group}
            lines.append(ranking(f"Test error in %, {title}", errors, percent))
        else:
            losses = {v.label: v.last("test_loss") for v in group}
            lines.append(ranking(f"Test loss, {title}", losses, number))
    return lines


def robustness(recipe: Recipe, variants: list[Variant]) -> list[str]:
    """Figure 3: networks trained without dropout and tested with noise."""
    compared = [v for v in variants if v.keep == 1 and v.activation != "soi"]
    if not recipe.noise or len(compared) < 2:
        return []
    lines = []
    for column, what, show in (
        ("test_error", "Test error in %", percent),
        ("test_loss", "Test log loss", number),
    ):
        found = {v.label: v.curve(column, "robustness") for v in compared}
        medians = {name: [spread.median for spread in found[name]] for name in found}
        lowest = [min(column) for column in zip(*medians.values(), strict=True)]
        counts = ", ".join(
            f"{name} at {sum(map(operator.eq, medians[name], lowest))}" for name in found
        )
        strengths = len(recipe.noise)
        lines.append(f"- {what}, lowest of {strengths} strengths of noise: {counts}.")
        last = {name: spreads[-1] for name, spreads in found.items()}
        lines.append(ranking(f"{what} at the strongest, a = {recipe.noise[-1]:g}", last, show))
    return lines


def beside_soi(recipe: Recipe, variants: list[Variant]) -> list[str]:
    """Section 4: the SOI map against a ReLU with the dropout that validates best."""
    soi = next((v for v in variants if v.activation == "soi"), None)
    relu = [v for v in variants if v.activation == "relu" and v.keep in KEEPS_BESIDE_SOI]
    if soi is None or not relu or "soi" not in recipe.paper:
        return []
    relu = min(relu, key=lambda variant: variant.criterion)
    errors = {named(v): v.best("test_error") for v in (soi, relu)}
    line = ranking("Test error in %, the SOI map and a ReLU with dropout", errors, percent)
    return [f"{line} The paper: {recipe.paper['soi']} and {recipe.paper['relu beside soi']}."]


def findings(recipe: Recipe, variants: list[Variant]) -> list[str]:
    parts = (by_group, robustness, beside_soi)
    return [line for part in parts for line in part(recipe, variants)]
