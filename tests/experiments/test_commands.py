"""``python -m experiments`` writes its files and page, for stand-ins and for real formats."""

import csv
import sys
from pathlib import Path

import pytest
import torch

from tests.experiments.data import written_files as written

for needed in ("librosa", "matplotlib", "sklearn"):
    pytest.importorskip(needed)
from PIL import Image  # noqa: E402

from experiments import __main__ as command_line  # noqa: E402
from experiments.data.timit import CORE_TEST, DEVELOPMENT  # noqa: E402
from experiments.recipes import RECIPES  # noqa: E402

WRITERS = {
    "mnist-classifier": written.mnist,
    "mnist-autoencoder": written.mnist,
    "twitter-pos": written.tweets,
    "timit": lambda folder: written.timit(folder, ["fcjf0"], f"{CORE_TEST} {DEVELOPMENT}".split()),
    "cifar10": written.cifar10,
    "cifar100": written.cifar100,
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shrinks the recipes of --quick further."""
    for recipe in RECIPES.values():
        few = {"examples": 60, "epochs": 1, "learning_rates": recipe.learning_rates[:2]}
        for name, value in few.items():
            monkeypatch.setitem(recipe.quick, name, value)


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str | Path) -> Path:
    options = ["--quick", "--seeds", "1", "--processes", "1", "--device", "cpu"]
    arguments = [*words, *options, "--output", folder]
    monkeypatch.setattr(sys, "argv", ["experiments", *map(str, arguments)])
    threads = torch.get_num_threads()
    command_line.main()
    torch.set_num_threads(threads)
    return folder


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", RECIPES)
def test_with_the_soi_map_and_a_learnt_gate(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = run(monkeypatch, tmp_path, name, "--activation", "soi", "cdf_gate")
    recipe = RECIPES[name]
    lines = table(folder / name / "results.csv")
    rates = recipe.learning_rates[:2] if recipe.choose == "none" else [None]
    assert [line["activation"] for line in lines] == (
        ["cdf_gate"] * len(recipe.keeps) * len(rates) + ["soi"] * len(rates)
    )
    assert {line["keep"] for line in lines if line["activation"] == "soi"} == {"1.0"}
    assert all(float(line["train_loss_median"]) > 0 for line in lines)
    assert len(table(folder / name / "training.csv")) == len(lines)
    with Image.open(folder / name / "training.png") as picture:
        assert picture.height > 300
    page = (folder / "README.md").read_text()
    assert page.count("\n## ") == 1 and f"\n## {recipe.title}\n" in page
    assert "**They stand in for" in page
    assert f"({name}/training.png)" in page and "| SOI map" in page and "| CDF gate" in page


SLOW = {"cifar10", "timit"}  # by whitening 3072 numbers, and by librosa's compilation


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in RECIPES]
)
def test_on_files(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    WRITERS[name](data)
    folder = run(monkeypatch, tmp_path, name, "--data", data, "--activation", "gelu")
    assert len(table(folder / name / "results.csv")) >= 1
    assert "stand in" not in (folder / "README.md").read_text()


def test_the_variance(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = run(monkeypatch, tmp_path, "variance", "--activation", "soi")
    lines = table(folder / "variance" / "results.csv")
    assert [line["mask"] for line in lines] == ["dropout p=0.5"] * 11 + ["soi"] * 11
    assert "| soi " in (folder / "README.md").read_text()


def test_the_page_has_all_that_the_folder_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("variance", "twitter-pos"):
        run(monkeypatch, tmp_path, name, "--activation", "soi")
    page = (tmp_path / "README.md").read_text()
    assert [line for line in page.splitlines() if line.startswith("## ")] == [
        "## Parts of speech in tweets",
        "## The variance of a prediction",
    ]


WRONG = {
    "an unknown experiment": (["mnist"], "invalid choice: 'mnist'"),
    "an unknown activation": (["timit", "--activation", "gelo"], "invalid choice: 'gelo'"),
    "data of two": (["cifar10", "cifar100", "--data", "."], "--data is for one experiment"),
    "data of none": (["variance", "--data", "."], "--data is for one experiment"),
    "no seeds": (["timit", "--seeds", "0"], "--seeds: 0 is not positive"),
    "a mask of none": (
        ["variance", "--activation", "gelu"],
        "variance: activations: 'gelu' is not one of soi, cdf_gate",
    ),
    "no files": (["cifar10", "--data", "nowhere"], "nowhere/data_batch_1.bin: expected a file of"),
}


@pytest.mark.parametrize("words, message", WRONG.values(), ids=WRONG)
def test_wrong_words(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(sys, "argv", ["experiments", *words])
    with pytest.raises(SystemExit) as stop:
        command_line.main()
    assert message in f"{stop.value.code} {capsys.readouterr().err}"
