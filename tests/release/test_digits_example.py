"""examples/digits.py, which ``make demo`` runs."""

import importlib.util

import torch

from tests import ROOT

EXAMPLE = ROOT / "examples" / "digits.py"


def test_networks_start_alike():
    """All but the stochastic one compute the same, with torch's activation and with ours."""
    spec = importlib.util.spec_from_file_location("digits", EXAMPLE)
    digits = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(digits)
    x = torch.randn(8, digits.PIXELS)
    networks = [
        digits.build(hidden, 0, torch.device("cpu")).network
        for name, hidden in digits.hidden_layers().items()
        if "SOI" not in name
    ]
    expected, *results = [network(x) for network in networks]
    assert len(results) == 2
    for result in results:
        torch.testing.assert_close(result, expected)
