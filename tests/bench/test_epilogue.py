"""``python -m bench.epilogue``: it times nothing wrong, and what share the gate has."""

import csv
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bench import epilogue

SHAPE = "64x32x96"


def run(output: Path, *arguments: str) -> Result:
    small = ("--shape", SHAPE, "--seconds", "0.01", "--output", str(output))
    return CliRunner().invoke(epilogue.main, [*small, *arguments])


def test_every_side(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.exit_code == 0, result.output
    (path,) = tmp_path.iterdir()
    with path.open() as file:
        found = [(row["pass"], row["what"]) for row in csv.DictReader(file)]
    assert [what for label, what in found if label == "forward"] == list(epilogue.FORWARD)
    assert len([what for label, what in found if label == "backward"]) == 4


def test_without_time(tmp_path: Path) -> None:
    result = run(tmp_path, "--deadline", "0", "--compiled")
    assert result.exit_code == 0
    assert f"skipped: {SHAPE}, compiled: no time was left" in result.output


def test_a_wrong_side_is_not_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = epilogue.FORWARD[epilogue.FUSED]
    monkeypatch.setitem(epilogue.FORWARD, epilogue.FUSED, lambda *args: right(*args) * 1.1)
    result = run(tmp_path)
    assert result.exit_code == 1 and "_addmm_activation: an error of" in result.output
    assert not list(tmp_path.iterdir())


def test_a_failure_of_inductor_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*tensors: object) -> None:
        raise ValueError("no choice")

    monkeypatch.setattr(epilogue, "inductor", lambda device: {"Inductor, max-autotune": fails})
    result = run(tmp_path, "--compiled")
    assert result.exit_code == 0
    assert "not compared: Inductor, max-autotune (ValueError: no choice)" in result.output


def test_shares() -> None:
    """The gate's pass takes 1 of 5 us forward, and 2 of 8 backward."""

    def row(label: str, what: str, us: float) -> dict:
        return {"pass": label, "what": what, "us": us}

    rows = [row("forward", epilogue.ALONE, 4), row("forward", epilogue.GATED, 5)]
    rows += [row("backward", "dy W2", 6), row("backward", epilogue.GRADIENT, 2)]
    assert epilogue.shares(rows) == pytest.approx({"forward": 0.2, "backward": 0.25})
    assert epilogue.shares([]) == {}
