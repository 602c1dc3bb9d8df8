"""Interrupted runs resume to the same result, and never from the file of another run."""

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests import ROOT

pytest.importorskip("sklearn")
import gelu_kernels  # noqa: E402
from experiments import runs  # noqa: E402
from experiments.data.dataset import Part  # noqa: E402
from experiments.recipes import RECIPES, recipe_of  # noqa: E402
from experiments.runs import Plan, save, train_all  # noqa: E402
from experiments.training import Run, Settings  # noqa: E402

CPU = torch.device("cpu")
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
    """Lists the epochs that are run, and sets a checkpoint after each."""
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
    assert epochs_run == [3, 4]  # the third had run, but was not yet written
    # As text, because NaN != NaN.
    assert repr(parts["rows"]) == repr(whole["rows"])
    assert repr(parts["robustness"]) == repr(whole["robustness"])
    assert len(parts["rows"]) == EPOCHS
    counted: list[int] = []
    again = plan.train(settings, lambda: counted.append(1))
    assert len(counted) == EPOCHS
    assert epochs_run == [3, 4] and repr(again["rows"]) == repr(whole["rows"])


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.experiments.test_runs import after, plan_of, runs, settings_of
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


OTHERS: dict[str, tuple[dict[str, object], dict[str, object]]] = {  # plans, settings
    "experiment": ({"experiment": "mnist-classifier"}, {}),
    "quick": ({"quick": False}, {}),
    "epochs": ({}, {"epochs": EPOCHS + 1}),
    "dtype": ({}, {"dtype": "bfloat16"}),
    "seed": ({}, {"seed": 2}),
    "learning rate": ({}, {"learning_rate": 1e-4}),
}


@pytest.mark.parametrize("of_plan, of_settings", OTHERS.values(), ids=OTHERS)
def test_runs_of_other_plans_or_settings_are_not_taken(
    of_plan: dict, of_settings: dict, tmp_path: Path, epochs_run: list[int]
) -> None:
    settings, plan = settings_of("twitter-pos", "relu"), plan_of("twitter-pos", tmp_path)
    plan.train(settings, lambda: None)
    del epochs_run[:]
    other = dataclasses.replace(settings, **of_settings)
    dataclasses.replace(plan, **of_plan).train(other, lambda: None)
    assert epochs_run == [*range(1, other.epochs + 1)]


def test_runs_of_other_data_are_not_taken(tmp_path: Path, epochs_run: list[int]) -> None:
    settings, plan = settings_of("twitter-pos", "relu"), plan_of("twitter-pos", tmp_path)
    plan.train(settings, lambda: None)
    parts = plan.data.parts()
    for name, part in parts.items():
        for other in (Part(part.x.flip(0), part.y), Part(part.x, (part.y + 1) % 25)):
            del epochs_run[:]
            data = dataclasses.replace(plan.data, **{name: other})
            dataclasses.replace(plan, data=data).train(settings, lambda: None)
            assert epochs_run == [*range(1, EPOCHS + 1)], name
    changed = dataclasses.replace(plan.data, table=2 * plan.data.table)
    assert changed.digest() != plan.data.digest() == plan_of("twitter-pos", tmp_path).data.digest()


def test_runs_of_other_devices_or_versions_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the identity in a run's file, as there may be no other device."""
    plan = plan_of("twitter-pos", tmp_path)
    on_gpu = dataclasses.replace(plan, device=torch.device("cuda"))
    assert plan.identity == dataclasses.replace(plan).identity != on_gpu.identity
    for package in (torch, gelu_kernels):
        with monkeypatch.context() as patch:
            patch.setattr(package, "__version__", "0")
            assert dataclasses.replace(plan).identity != plan.identity


def test_an_interruption_leaves_no_half_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(state: object, path: Path) -> None:
        path.write_bytes(b"half")
        interrupt()

    path = tmp_path / "run.pt"
    save({"rows": [1]}, path)
    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(KeyboardInterrupt):
        save({"rows": [1, 2]}, path)
    assert torch.load(path) == {"rows": [1]}


@pytest.mark.slow
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
