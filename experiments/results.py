"""Trains the variants of an experiment, and summarises the results of each over its seeds."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import NamedTuple

from experiments.activations import ACTIVATIONS
from experiments.recipe import Recipe
from experiments.runs import Plan, Results, train_all
from experiments.training import Row, Settings


class Spread(NamedTuple):
    """The median and the range over the seeds."""

    median: float
    low: float
    high: float


def spread(values: Iterable[float]) -> Spread:
    """A run that diverged, whose loss is NaN, counts as the worst."""
    values = [math.inf if math.isnan(value) else value for value in values]
    return Spread(median(values), min(values), max(values))


@dataclass(frozen=True)
class Variant:
    """The runs of all seeds with an activation, a probability to keep and a learning rate."""

    activation: str
    keep: float
    learning_rate: float
    runs: list[Results]

    @property
    def label(self) -> str:
        return ACTIVATIONS[self.activation].label

    def curve(self, column: str, rows: str = "rows") -> list[Spread]:
        """For each epoch; for "robustness", for each strength of the noise."""
        return [
            spread(row[column] for row in of_seeds)
            for of_seeds in zip(*(run[rows] for run in self.runs), strict=True)
        ]

    def last(self, column: str) -> Spread:
        return self.curve(column)[-1]

    def best(self, column: str) -> Spread:
        """At each run's epoch with the lowest validation error, or the last where there is none."""
        return spread(best_epoch(run["rows"])[column] for run in self.runs)

    def key(self) -> dict[str, float | str]:
        return {
            "activation": self.activation,
            "keep": self.keep,
            "learning_rate": self.learning_rate,
        }

    def summary(self) -> dict[str, float | str]:
        """Losses of the last epoch, and the test error as `best` takes it."""
        found = self.key()
        last = {name: self.last(name) for name in ("train_loss", "test_loss")}
        for name, spread in {**last, "test_error": self.best("test_error")}.items():
            found |= {f"{name}_{of}": value for of, value in spread._asdict().items()}
        return found

    @cached_property
    def criterion(self) -> tuple[float, float]:
        """Lower is better. The loss breaks ties, which are common with few validation examples."""
        return self.best("validation_error").median, self.best("validation_loss").median


def best_epoch(rows: list[Row]) -> Row:
    def key(row: Row) -> tuple[float, float]:
        return row["validation_error"], row["validation_loss"]

    candidates = [row for row in rows if not any(map(math.isnan, key(row)))]
    return min(candidates, key=key) if candidates else rows[-1]


def groups(recipe: Recipe, variants: list[Variant]) -> dict[str, list[Variant]]:
    """The panels of a figure. The SOI map is in the first, which has the least dropout."""
    if len(recipe.reported_rates) > 1:
        return {
            f"learning rate {rate:g}": [v for v in variants if v.learning_rate == rate]
            for rate in recipe.reported_rates
        }
    found = {}
    for keep in recipe.keeps:
        of_soi = 1.0 if keep == recipe.keeps[0] else None
        found["without dropout" if keep == 1 else f"keep {keep:g}"] = [
            v for v in variants if v.keep == (of_soi if v.activation == "soi" else keep)
        ]
    return found


def train_variants(
    plan: Plan, activations: Sequence[str], seeds: int, dtype: str, processes: int
) -> list[Variant]:
    """Trains with every learning rate, and returns the variants that `recipe.choose` selects."""
    recipe = plan.recipe

    def train(wanted: Iterable[tuple[str, float, float]], on_validation: bool) -> list[Variant]:
        groups = {
            setting: [
                Settings(*setting, seed, recipe.epochs, dtype, on_validation)
                for seed in range(seeds)
            ]
            for setting in wanted
        }
        found = train_all(plan, sum(groups.values(), []), processes, plan.experiment)
        return [Variant(*setting, [found[s] for s in group]) for setting, group in groups.items()]

    pairs = recipe.variants(activations)
    every = [(*pair, rate) for pair in pairs for rate in recipe.learning_rates]
    tried = train(every, on_validation=recipe.choose == "none")
    if recipe.choose == "none":
        return tried
    chosen = [
        min((v for v in tried if (v.activation, v.keep) == pair), key=lambda v: v.criterion)
        for pair in pairs
    ]
    if recipe.choose == "validation":
        return chosen
    return train(((v.activation, v.keep, v.learning_rate) for v in chosen), on_validation=True)
