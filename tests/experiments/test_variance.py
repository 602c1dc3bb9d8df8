"""The variance of a prediction under random masks agrees with the paper's formula."""

import pytest
import torch

pytest.importorskip("matplotlib")
from scipy.stats import chi2  # noqa: E402

from experiments import variance  # noqa: E402

CPU = torch.device("cpu")
DRAWS = 2**13


@pytest.fixture(scope="module")
def rows():
    return variance.measure(["soi", "cdf_gate"], DRAWS, 0, CPU)


def test_the_formula_is_measured(rows):
    z = torch.tensor([row.z for row in rows])
    assert len(z) == 3 * 11
    assert z.abs().max() < 5
    low, high = chi2.interval(1 - 1e-6, len(z))
    assert low < z.square().sum() < high


def test_the_soi_map_dampens(rows):
    formula = {(row.mask, row.scale): row.formula for row in rows}
    measured = {(row.mask, row.scale): row.measured for row in rows}
    assert formula[variance.DROPOUT, 8] / formula[variance.DROPOUT, 2] == pytest.approx(16)
    # A measured variance of 2^13 draws is within 1.6 %, by its standard error.
    assert measured[variance.DROPOUT, 8] / measured[variance.DROPOUT, 2] == pytest.approx(16, 0.1)
    for variances in (formula, measured):
        assert variances["soi", 8] < variances["soi", 2] / 2


def test_the_standard_error_of_four_numbers():
    """With mean 1, variance 4 and fourth central moment 21: (21 - 16 * 1/3)/4 = 47/12."""
    y = torch.tensor([0.0, 0.0, 0.0, 4.0], dtype=torch.float64)
    assert variance.sample_variance(y) == pytest.approx((4, (47 / 12) ** 0.5), rel=1e-12)


def test_the_seed_alone_decides():
    torch.manual_seed(99)
    before = torch.get_rng_state()
    seen = []
    again = variance.measure(["soi"], 512, 0, CPU, progress=lambda: seen.append(None))
    assert again == variance.measure(["soi"], 512, 0, CPU)
    assert len(seen) == len(again) == 2 * len(variance.SCALES)
    assert variance.measure([], 512, 1, CPU)[0].measured != again[0].measured
    assert torch.equal(torch.get_rng_state(), before)


def test_rows_are_drawn(rows):
    (axes,) = variance.plot(rows).axes
    lines = {line.get_label(): line for line in axes.lines}
    formula = lines["soi, formula"].get_ydata()
    assert list(formula) == [row.formula for row in rows if row.mask == "soi"]
    assert axes.get_xscale() == axes.get_yscale() == "log"
