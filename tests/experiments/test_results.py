"""Which settings, epochs and seeds are reported."""

import dataclasses
import math
from pathlib import Path

import pytest

from experiments import results
from experiments.recipes import RECIPES
from experiments.results import Spread, Variant, best_epoch, spread, train_variants
from experiments.runs import Plan
from experiments.training import Settings
from tests.experiments.test_runs import plan_of


def rows_of(*errors: float, loss: float = 1.0) -> list[dict[str, float]]:
    names = ("step_loss", "train_loss", "train_error", "test_loss")
    return [
        {
            "epoch": epoch,
            **dict.fromkeys(names, loss),
            "validation_loss": loss,
            "validation_error": error,
            "test_error": 1 - error,
        }
        for epoch, error in enumerate(errors, start=1)
    ]


def test_the_best_epoch() -> None:
    assert best_epoch(rows_of(0.3, 0.1, 0.2))["epoch"] == 2
    assert best_epoch(rows_of(math.nan, math.nan))["epoch"] == 2
    tied = rows_of(0.1, 0.1, math.nan)
    tied[0]["validation_loss"] = 2.0
    assert best_epoch(tied)["epoch"] == 2


def test_spread() -> None:
    assert spread([3.0, 1.0, 2.0]) == Spread(2, 1, 3)
    assert spread([3.0, math.nan, 2.0]) == Spread(3, 2, math.inf)


def test_the_last_epoch_and_the_best() -> None:
    """Of three seeds, whose best epochs are the first, the second and the first."""
    errors = (0.1, 0.5), (0.6, 0.2), (0.3, 0.4)
    variant = Variant("gelu", 1.0, 1e-3, [{"rows": rows_of(*found)} for found in errors])
    assert variant.curve("validation_error") == [Spread(0.3, 0.1, 0.6), Spread(0.4, 0.2, 0.5)]
    assert variant.last("validation_error") == Spread(0.4, 0.2, 0.5)
    assert variant.best("validation_error") == Spread(0.2, 0.1, 0.3)
    assert variant.best("test_error") == Spread(1 - 0.2, 1 - 0.3, 1 - 0.1)
    summary = variant.summary()
    assert summary["test_error_median"] == 1 - 0.2
    assert summary["train_loss_low"] == summary["test_loss_high"] == 1


@pytest.mark.parametrize("choose", ["validation", "retrain", "none"])
def test_the_learning_rate_is_chosen_by_the_median_validation_error(
    choose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1e-4 has the best median, 1e-3 the best seed and the best test error."""
    validation = {1e-3: (0.0, 0.3, 0.3), 1e-4: (0.2, 0.1, 0.1), 1e-5: (0.2, 0.2, 0.2)}
    asked: list[list[Settings]] = []

    def train_all(plan: Plan, wanted: list[Settings], processes: int, label: str) -> dict:
        asked.append(wanted)
        return {
            s: {"rows": rows_of(0.5, validation[s.learning_rate][s.seed]), "robustness": []}
            for s in wanted
        }

    monkeypatch.setattr(results, "train_all", train_all)
    recipe = dataclasses.replace(RECIPES["twitter-pos"], choose=choose)
    monkeypatch.setattr(Plan, "recipe", recipe)
    variants = train_variants(plan_of("twitter-pos", tmp_path), ["gelu", "elu"], 3, "float32", 1)
    assert len(asked[0]) == 2 * 3 * 3
    found = [(v.activation, v.keep, v.learning_rate) for v in variants]
    if choose == "none":
        rates = recipe.learning_rates
        assert found == [(name, 0.8, rate) for name in ("gelu", "elu") for rate in rates]
    else:
        assert found == [("gelu", 0.8, 1e-4), ("elu", 0.8, 1e-4)]
        assert variants[0].best("test_error") == Spread(0.9, 0.8, 0.9)
    assert all(s.on_validation == (choose == "none") for s in asked[0])
    assert len(asked) == (2 if choose == "retrain" else 1)
    if choose == "retrain":
        assert {(s.learning_rate, s.on_validation) for s in asked[1]} == {(1e-4, True)}


def test_the_variants_of_the_paper() -> None:
    recipe = RECIPES["mnist-classifier"]
    assert recipe.variants(recipe.activations) == [
        ("gelu", 1.0), ("gelu", 0.5), ("relu", 1.0), ("relu", 0.5), ("elu", 1.0), ("elu", 0.5),
        ("soi", 1.0), ("relu", 0.75),
    ]  # fmt: skip
    assert RECIPES["cifar10"].variants(["soi", "relu"]) == [("relu", 0.5), ("soi", 1.0)]
    assert Variant("soi", 1.0, 1e-3, []).label == "SOI map"
