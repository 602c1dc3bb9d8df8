"""What the page says about given results: rankings, counts, tables, sizes."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
from experiments.findings import findings, number, percent, ranking  # noqa: E402
from experiments.recipes import RECIPES  # noqa: E402
from experiments.report import command, section  # noqa: E402
from experiments.results import Spread, Variant, groups  # noqa: E402
from tests.experiments.test_runs import plan_of  # noqa: E402


def variant(
    activation: str,
    keep: float = 1.0,
    rate: float = 1e-3,
    *,
    loss: Sequence[float] = (1.0, 2.0, 3.0),  # of each seed, in the last epoch
    error: float = 0.5,
    validation: float = 0.5,
    noise: Sequence[float] = (),
) -> Variant:
    """The first epoch has the best validation error, and the last another test error."""

    def run(of_seed: float) -> dict[str, list]:
        other = dict.fromkeys(("validation_loss", "train_error", "step_loss"), 0.0)
        rows = [
            {
                **other,
                "train_loss": of_seed + left,
                "test_loss": 10 * of_seed + left,
                "validation_error": validation + late,
                "test_error": error + late,
            }
            for left, late in ((0.25, 0.0), (0.0, 0.25))
        ]
        strengths = [{"test_error": value, "test_loss": 1 - value} for value in noise]
        return {"rows": rows, "robustness": strengths}

    return Variant(activation, keep, rate, [run(of_seed) for of_seed in loss])


def test_words_of_a_ranking() -> None:
    found = {"a": Spread(2.0, 1.0, 3.0), "b": Spread(0.5, 0.25, 1.5)}
    assert ranking("Loss", found, number) == (
        "- Loss: **b** is lowest, within the seeds' range. b 0.5 (0.25 to 1.5); a 2 (1 to 3)."
    )
    found["b"] = Spread(0.1, 0.05, 0.15)
    assert "**b** is lowest, below every seed of the others" in ranking("Loss", found, number)
    found["c"] = Spread(0.1, 0.0, 0.2)
    assert "**b and c** are equally low" in ranking("Loss", found, number)
    assert percent(Spread(0.125, 0.1, 0.2)) == "12.50 (10.00 to 20.00)"
    assert percent(Spread(0.125, 0.125, 0.125)) == "12.50"


def test_findings_of_a_classifier() -> None:
    recipe = dataclasses.replace(RECIPES["mnist-classifier"], noise=(0.0, 1.0, 2.0))
    variants = [
        variant("gelu", error=0.3, noise=(0.1, 0.3, 0.6)),
        variant("relu", error=0.2, noise=(0.2, 0.4, 0.6), loss=(4, 5, 6)),
        variant("soi", error=0.1, noise=(0.0, 0.0, 0.0), loss=(7, 8, 9)),
        variant("gelu", 0.5, loss=(4, 5, 6)),
        variant("relu", 0.5, loss=(1, 2, 4)),
        variant("relu", 0.75, error=0.4, validation=0.4),
    ]
    assert findings(recipe, variants) == [
        "- Training loss, without dropout: **GELU** is lowest, below every seed of the others. "
        "GELU 2 (1 to 3); ReLU 5 (4 to 6); SOI map 8 (7 to 9).",
        "- Test error in %, without dropout: **SOI map** is lowest, below every seed of the "
        "others. SOI map 10.00; ReLU 20.00; GELU 30.00.",
        "- Training loss, keep 0.5: **ReLU** is lowest, within the seeds' range. "
        "ReLU 2 (1 to 4); GELU 5 (4 to 6).",
        "- Test error in %, keep 0.5: **GELU and ReLU** are equally low. GELU 50.00; ReLU 50.00.",
        "- Test error in %, lowest of 3 strengths of noise: GELU at 3, ReLU at 1.",
        "- Test error in % at the strongest, a = 2: **GELU and ReLU** are equally low. "
        "GELU 60.00; ReLU 60.00.",
        "- Test log loss, lowest of 3 strengths of noise: GELU at 1, ReLU at 3.",
        "- Test log loss at the strongest, a = 2: **GELU and ReLU** are equally low. "
        "GELU 0.4; ReLU 0.4.",
        "- Test error in %, the SOI map and a ReLU with dropout: **SOI map** is lowest, below "
        "every seed of the others. SOI map 10.00; ReLU, keep 0.75 40.00. "
        "The paper: 2.00 and 2.10.",
    ]


def test_findings_of_each_learning_rate() -> None:
    recipe = dataclasses.replace(RECIPES["mnist-autoencoder"], learning_rates=(1e-3, 1e-4))
    variants = [
        variant("gelu"),
        variant("elu", loss=(4, 5, 6)),
        variant("gelu", rate=1e-4, loss=(2, 3, 4)),
        variant("elu", rate=1e-4),
    ]
    assert groups(recipe, variants) == {
        "learning rate 0.001": variants[:2],
        "learning rate 0.0001": variants[2:],
    }
    assert [line.split("**")[:2] for line in findings(recipe, variants)] == [
        ["- Training loss, learning rate 0.001: ", "GELU"],
        ["- Test loss, learning rate 0.001: ", "GELU"],
        ["- Training loss, learning rate 0.0001: ", "ELU"],
        ["- Test loss, learning rate 0.0001: ", "ELU"],
    ]
    assert "GELU 20 (10 to 30); ELU 50 (40 to 60)" in findings(recipe, variants)[1]


def test_a_section(tmp_path: Path) -> None:
    """Only the paper's settings show the paper's figure."""
    variants = [
        variant("gelu", 0.8, error=0.125),
        variant("relu", 0.8),
        variant("soi", rate=1e-4),
        variant("relu"),
        variant("silu", 0.8),
    ]
    text = section(plan_of("twitter-pos", tmp_path), variants, ["training"])
    rows = [line.strip("| ").split("|") for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in row] for row in rows]
    assert cells[0] == ["activation", "learning rate", "training loss", "test error, %", "paper, %"]
    assert cells[2:] == [
        ["GELU, keep 0.8", "0.001", "2 (1 to 3)", "12.50", "12.57"],
        ["ReLU, keep 0.8", "0.001", "2 (1 to 3)", "50.00", "12.67"],
        ["SOI map", "0.0001", "2 (1 to 3)", "50.00", "12.5"],
        ["ReLU", "0.001", "2 (1 to 3)", "50.00"],
        ["SiLU, keep 0.8", "0.001", "2 (1 to 3)", "50.00"],
    ]
    assert "(70 train, 70 validation, 70 test). A run: 10 epochs, 40 steps. Seeds: 3." in text
    assert "The Bayes error is 10.72%." in text
    command = "python -m experiments twitter-pos --activation gelu relu soi silu --quick"
    assert f"`{command}`" in text
    assert "![training](twitter-pos/training.png)" in text


def test_a_section_says_that_validation_examples_were_trained_on(tmp_path: Path) -> None:
    plan = dataclasses.replace(plan_of("cifar10", tmp_path), epochs=5)
    variants = [variant(name, 0.5) for name in ("gelu", "relu", "elu")]
    text = section(plan, variants, [])
    assert "(140 train, 70 test). A run: 5 epochs, 20 steps." in text
    assert "`python -m experiments cifar10 --epochs 5 --quick`" in text


def test_the_command_of_a_section(tmp_path: Path) -> None:
    plan = dataclasses.replace(plan_of("cifar10", tmp_path), quick=False)
    plan = dataclasses.replace(plan, data=dataclasses.replace(plan.data, stands_in_for=None))
    found = command(plan, [variant("gelu", 0.5, loss=(1, 2))])
    assert found == "python -m experiments cifar10 --data DIR --activation gelu --seeds 2"
