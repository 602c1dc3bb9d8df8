"""The results of a setting over its seeds: medians, ranges and the best epoch."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import NamedTuple

from experiments.activations import ACTIVATIONS
from experiments.recipe import Recipe
from experiments.runs import Results
from experiments.training import Row


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
