"""Runs of the experiments: their steps, their interruption, and the choice among them."""

import dataclasses
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

pytest.importorskip("sklearn")
from experiments import results, runs  # noqa: E402
from experiments.data.dataset import Dataset, Part  # noqa: E402
from experiments.data.digits import digit_images, digits  # noqa: E402
from experiments.recipe import cosine, linear_in_second_half, nesterov, whitened  # noqa: E402
from experiments.recipes import RECIPES, recipe_of  # noqa: E402
from experiments.results import Spread, Variant, best_epoch, spread  # noqa: E402
from experiments.runs import Plan, train_all  # noqa: E402
from experiments.training import Run, Settings  # noqa: E402

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[1]
EPOCHS = 4


def plan_of(name: str, folder: Path, examples: int = 70) -> Plan:
    recipe = recipe_of(name, quick=True, epochs=None)
    return Plan(name, True, None, recipe.data(None).first(examples), CPU, folder)


def settings_of(name: str, activation: str) -> Settings:
    recipe = RECIPES[name]
    keep = 1.0 if activation == "soi" else recipe.keeps[-1]
    all_ = recipe.choose == "none"
    rate = recipe.learning_rates[0]
    return Settings(activation, keep, rate, 1, EPOCHS, "float32", on_validation=all_)


def after(epochs: int, action: Callable[[], None]) -> Callable[[], None]:
    """For `epoch_done`."""
    left = iter(range(epochs - 1))

    def epoch_done() -> None:
        if next(left, None) is None:
            action()

    return epoch_done


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.fixture
def epochs_run(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The epochs that are run, with a checkpoint after each."""
    monkeypatch.setattr(runs, "SECONDS_BETWEEN_CHECKPOINTS", -1)
    found, epoch = [], Run.epoch

    def spy(run: Run) -> None:
        epoch(run)
        found.append(len(run.rows))

    monkeypatch.setattr(Run, "epoch", spy)
    return found


@pytest.mark.parametrize(
    "name, activation",
    [
        ("mnist-classifier", "soi"),
        ("mnist-classifier", "gelu"),
        ("mnist-autoencoder", "cdf_gate"),
        ("twitter-pos", "gelu"),
        ("cifar10", "elu"),
        ("cifar100", "soi"),
    ],
)
def test_an_interrupted_run_goes_on_to_the_same_result(
    name: str, activation: str, tmp_path: Path, epochs_run: list[int]
) -> None:
    settings = settings_of(name, activation)
    whole = plan_of(name, tmp_path / "whole").train(settings, lambda: None)
    plan = plan_of(name, tmp_path / "parts")
    with pytest.raises(KeyboardInterrupt):
        plan.train(settings, after(3, interrupt))
    torch.manual_seed(99)
    del epochs_run[:]
    parts = plan.train(settings, lambda: None)
    assert epochs_run == [3, 4]  # the third was over, and not yet written
    # In words, as NaN is not NaN.
    assert repr(parts["rows"]) == repr(whole["rows"])
    assert repr(parts["robustness"]) == repr(whole["robustness"])
    assert len(parts["rows"]) == EPOCHS
    again = plan.train(settings, lambda: None)
    assert epochs_run == [3, 4] and repr(again["rows"]) == repr(whole["rows"])


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, "tests")
from test_experiments_runs import after, plan_of, runs, settings_of
runs.SECONDS_BETWEEN_CHECKPOINTS = -1
NAME = "mnist-classifier"
kill = lambda: os.kill(os.getpid(), signal.SIGKILL)
plan, settings = plan_of(NAME, Path(sys.argv[1])), settings_of(NAME, "soi")
plan.train(settings, after(3, kill))
"""


def test_a_killed_run_goes_on_to_the_same_result(tmp_path: Path, epochs_run: list[int]) -> None:
    command = [sys.executable, "-c", KILLED, tmp_path / "killed"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    assert subprocess.run(command, cwd=ROOT, env=environment).returncode == -signal.SIGKILL
    settings = settings_of("mnist-classifier", "soi")
    killed = plan_of("mnist-classifier", tmp_path / "killed").train(settings, lambda: None)
    assert epochs_run == [3, 4]
    whole = plan_of("mnist-classifier", tmp_path / "whole").train(settings, lambda: None)
    assert repr(killed["rows"]) == repr(whole["rows"])


def test_runs_of_other_data_or_settings_are_not_taken(
    tmp_path: Path, epochs_run: list[int]
) -> None:
    settings = settings_of("twitter-pos", "relu")
    plan = plan_of("twitter-pos", tmp_path)
    first = plan.train(settings, lambda: None)
    other = dataclasses.replace(plan, data=plan.data.first(60)).train(settings, lambda: None)
    assert epochs_run == 2 * [1, 2, 3, 4] and repr(other["rows"]) != repr(first["rows"])
    slower = dataclasses.replace(plan, quick=False).train(settings, lambda: None)
    assert epochs_run == 3 * [1, 2, 3, 4] and len(slower["rows"]) == EPOCHS


def test_side_by_side_the_results_are_the_same(tmp_path: Path) -> None:
    wanted = [settings_of("mnist-classifier", name) for name in ("gelu", "soi", "relu")]
    alone = train_all(plan_of("mnist-classifier", tmp_path / "1"), wanted, 1, "")
    together = train_all(plan_of("mnist-classifier", tmp_path / "2"), wanted, 2, "")
    assert list(together) == wanted
    assert repr([r["rows"] for r in together.values()]) == repr([r["rows"] for r in alone.values()])


@pytest.mark.slow
def test_an_error_in_a_worker_is_raised(tmp_path: Path) -> None:
    wanted = [settings_of("mnist-classifier", name) for name in ("gelu", "no activation")]
    with pytest.raises(KeyError, match="no activation"):
        train_all(plan_of("mnist-classifier", tmp_path), wanted, 2, "")


class Table(nn.Module):
    """Logits that are the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * x


def run_of(x: torch.Tensor, y: torch.Tensor, **changes: object) -> Run:
    part = Part(x, y)
    recipe = dataclasses.replace(
        RECIPES["mnist-classifier"], model=lambda *args: Table(), batch=4, **changes
    )
    return Run(
        recipe, settings_of("mnist-classifier", "gelu"), Dataset("", part, part, part, 3), CPU
    )


def test_losses_and_errors() -> None:
    x, y = torch.randn(2500, 3), torch.randint(3, (2500,))
    loss, error = run_of(x, y).evaluate(Part(x, y))
    assert loss == pytest.approx(cross_entropy(x.double(), y).item(), rel=1e-5)
    assert (
        error == sum(row.index(max(row)) != c for row, c in zip(x.tolist(), y, strict=True)) / 2500
    )
    assert all(map(math.isnan, run_of(x, y).evaluate(Part(x[:0], y[:0]))))


def test_noise_is_uniform() -> None:
    """Of 3000 numbers in [-2, 2]: mean and variance within 5 standard errors."""
    seen = []
    run = run_of(torch.zeros(1000, 3), torch.zeros(1000, dtype=torch.int64))
    run.network.register_forward_hook(lambda module, args, y: seen.append(args[0]))
    run.evaluate(run.data.test, noise=2.0)
    (x,) = seen
    assert 1.99 < x.max() <= 2 and -2 <= x.min() < -1.99
    assert abs(x.mean()) < 5 * (4 / 3 / 3000) ** 0.5
    # Of a uniform number the fourth moment is 9/5 of the squared variance.
    assert abs(x.var() - 4 / 3) < 5 * 4 / 3 * (0.8 / 3000) ** 0.5


def test_an_epoch_takes_each_example_once() -> None:
    seen = []
    x = torch.arange(30.0).view(10, 3)
    run = run_of(x, torch.zeros(10, dtype=torch.int64))
    run.network.register_forward_hook(
        lambda module, args, y: seen.append(args[0][:, 0] / 3) if module.training else None
    )
    for _ in range(2):
        run.epoch()
    first, second = torch.cat(seen[:2]).tolist(), torch.cat(seen[2:]).tolist()
    assert len(set(first)) == len(set(second)) == 8  # two batches of 4; 2 examples are left out
    assert first != second


def test_schedules() -> None:
    rates = []
    for done in (0.0, 0.25, 0.5, 0.75, 1.0):
        groups = {"lr": 0.0}, {"lr": 0.0}
        cosine(groups[0], 0.1, done)
        linear_in_second_half(groups[1], 1e-3, done)
        rates.append((groups[0]["lr"], groups[1]["lr"], groups[1]["betas"][0]))
    half = 0.05 / 2**0.5
    expected = [(0.1, 1e-3, 0.9), (0.05 + half, 1e-3, 0.9), (0.05, 1e-3, 0.5)]
    expected += [(0.05 - half, 5e-4, 0.5), (0.0, 0.0, 0.5)]
    assert [rate for row in rates for rate in row] == pytest.approx(sum(expected, ()))


def test_weights_decay_and_biases_do_not() -> None:
    layer = nn.Linear(2, 2)
    weight, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
    optimizer = nesterov(layer, 0.1)
    layer.weight.grad, layer.bias.grad = torch.zeros(2, 2), torch.zeros(2)
    optimizer.step()
    # The gradient of 0.0005 |w|^2 is 0.001 w; Nesterov's first step is 1.9 of it.
    torch.testing.assert_close(layer.weight.detach(), weight * (1 - 0.1 * 1.9 * 0.001))
    torch.testing.assert_close(layer.bias.detach(), bias)


def test_whitened_images() -> None:
    """Uncorrelated, of variance 1 where it was far above 1e-5; and the axes stay."""
    data = digit_images()
    white = whitened(data)
    x = torch.cat([white.train.x, white.validation.x]).flatten(1).double()
    original = torch.cat([data.train.x, data.validation.x]).flatten(1).double()
    variances = torch.linalg.eigvalsh(original.T.cov(correction=0))
    found = torch.linalg.eigvalsh(x.T.cov(correction=0))
    torch.testing.assert_close(found, variances / (variances + 1e-5), atol=1e-2, rtol=0)
    assert x.mean(0).abs().max() < 1e-3
    cross = (original - original.mean(0)).T @ x
    torch.testing.assert_close(cross, cross.T, atol=1e-2 * cross.abs().max().item(), rtol=0)
    assert white.test.x.shape == data.test.x.shape


def test_the_digits_are_divided_by_class() -> None:
    data = digits()
    assert [len(part.y) for part in data.parts().values()] == [1257, 180, 360]
    for part in data.parts().values():
        assert (part.y.bincount() - len(part.y) / 10).abs().max() <= 0.03 * len(part.y)
        assert 0 == part.x.min() < part.x.max() == 1
    whole = torch.cat([part.x for part in data.parts().values()])
    assert len(whole.unique(dim=0)) == 1797


def rows_of(*errors: float, loss: float = 1.0) -> list[dict[str, float]]:
    names = ("step_loss", "train_loss", "train_error", "test_loss")
    return [
        {
            "epoch": epoch,
            **dict.fromkeys(names, loss),
            "validation_loss": loss,
            "validation_error": error,
            "test_error": 10 * error,
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


@pytest.mark.parametrize("choose", ["validation", "retrain", "none"])
def test_the_learning_rate_is_chosen_by_the_median_validation_error(
    choose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1e-4 has the best median, 1e-3 the best seed, 1e-5 the best test error."""
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
    variants = results.run(plan_of("twitter-pos", tmp_path), ["gelu", "elu"], 3, "float32", 1)
    assert len(asked[0]) == 2 * 3 * 3
    found = [(v.activation, v.keep, v.learning_rate) for v in variants]
    if choose == "none":
        rates = recipe.learning_rates
        assert found == [(name, 0.8, rate) for name in ("gelu", "elu") for rate in rates]
    else:
        assert found == [("gelu", 0.8, 1e-4), ("elu", 0.8, 1e-4)]
        assert variants[0].best("test_error") == Spread(1, 1, 2)
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
