"""The examples that draw: examples/digits.py, which ``make demo`` runs, and examples/figures.py."""

import math
import runpy
from pathlib import Path

import pytest
import torch
from PIL import Image

from tests import ROOT

pytest.importorskip("matplotlib")
digits, figures = (
    runpy.run_path(str(ROOT / "examples" / name)) for name in ("digits.py", "figures.py")
)


def test_networks_start_alike() -> None:
    """All but the stochastic one compute the same, with torch's activation and with ours."""
    x = torch.randn(8, digits["PIXELS"])
    networks = [
        digits["build"](hidden, 0, torch.device("cpu")).network
        for name, hidden in digits["hidden_layers"]().items()
        if "SOI" not in name
    ]
    expected, *results = [network(x) for network in networks]
    assert len(results) == 2
    for result in results:
        torch.testing.assert_close(result, expected)


def test_the_cauchy_gate_meets_the_elu() -> None:
    """g(x) = max(x, 0) - a F(-a) for a = |x|, and a F(-a) = 1/pi - 1 / (3 pi a^2) + O(a^-4)."""
    for x in (-1000.0, -30.0, 30.0, 1000.0):
        expected = pytest.approx(1 / (3 * math.pi * x * x), rel=2 / x**2)
        assert figures["cauchy_apart"](x) == expected, x


def test_the_largest_differences_of_the_distributions() -> None:
    assert figures["largest_difference"](1.0) == pytest.approx(0.1, abs=0.02)
    assert figures["largest_difference"](1.702) == pytest.approx(0.01, abs=0.001)


def test_the_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the docs have it, but for what another version of matplotlib may draw otherwise."""
    drawn = tmp_path / "figures.png"
    monkeypatch.setattr("sys.argv", ["figures.py", "--output", str(drawn)])
    figures["main"]()
    committed = ROOT / "docs" / "guide" / "figures.png"
    assert committed.stat().st_size < 60_000
    with Image.open(drawn) as ours, Image.open(committed) as theirs:
        assert ours.size == theirs.size
