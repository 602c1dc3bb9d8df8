"""The oracle agrees with definitions and roundings that come from elsewhere."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.oracles import oracle
from tests.oracles.oracle import DERIVATIVE, mp, mpf
from tests.oracles.sweeps import HALF, ORDERS

NARROW = [*HALF, torch.float32]

DEFINITIONS = {
    "normal": lambda x: x * mp.ncdf(x),
    "normal_tanh": lambda x: (
        x / 2 * (1 + mp.tanh(mp.sqrt(2 / mp.pi) * (x + mpf("0.044715") * x**3)))
    ),
    "logistic_1702": lambda x: x / (1 + mp.exp(-mpf("1.702") * x)),
    "logistic": lambda x: x / (1 + mp.exp(-x)),
    "laplace": lambda x: x * mp.exp(x) / 2 if x < 0 else x - x * mp.exp(-x) / 2,
    "cauchy": lambda x: x * (mpf(1) / 2 + mp.atan(x) / mp.pi),
}


def test_exact_is_the_definition_and_its_numerical_derivatives(gate: str) -> None:
    for order, x in product(range(3), [-6.25, -2.5, -0.75, -(2.0**-30), 0.0, 2.0**-30, 0.75, 3.5]):
        expected = mp.diff(DEFINITIONS[gate], mpf(x), order)
        assert abs(oracle.exact(gate, order, x) - expected) <= 1e-40 * abs(expected), (order, x)


def test_reference_is_exact_to_12_digits(gate: str) -> None:
    root = -1.0 if gate in oracle.ROOTLESS else float(oracle.root(gate))
    x = np.concatenate(
        [
            np.linspace(-14, 14, 200),
            np.geomspace(1e-45, 1e38, 50),
            -np.geomspace(1e-45, 10, 50),
            root + np.outer([-1, 1], np.geomspace(2**-24, 2**-4, 60)).ravel(),
            np.nextafter(np.float32(root), np.float32([-1, 1])),
        ]
    )
    x = x.astype(np.float32).astype(np.float64)
    for order in ORDERS:
        expected = [oracle.exact(gate, order, value) for value in x]
        errors = [
            abs(y - e) / (abs(e) or 1)  # the root of a gate may be a float
            for y, e in zip(oracle.reference(gate, order, x), expected, strict=True)
        ]
        assert max(errors) < 1e-12, order


def test_roots(gate: str) -> None:
    if gate in oracle.ROOTLESS:
        assert min(oracle.exact(gate, DERIVATIVE, -(2.0**k)) for k in range(-10, 1000)) > 0
        return
    root = oracle.root(gate)
    below, above = np.nextafter(float(root), [-2, 0])
    assert oracle.exact(gate, DERIVATIVE, below) < 0 < oracle.exact(gate, DERIVATIVE, above)


def rounded_elsewhere(x: Tensor, dtype: torch.dtype) -> list[float]:
    """By NumPy's conversions and, for bfloat16, which NumPy does not have, torch's from float32."""
    if dtype == torch.bfloat16:
        return x.to(dtype).double().tolist()
    with np.errstate(over="ignore"):
        numpy_dtype = {torch.float16: np.float16, torch.float32: np.float32}[dtype]
        return x.numpy().astype(numpy_dtype).astype(float).tolist()


def test_correctly_rounded_is_ieee_rounding() -> None:
    exponents = torch.randint(-160, 140, (2000,))
    numbers = torch.ldexp(torch.randn(2000, dtype=torch.float64), exponents)
    ties = torch.ldexp(torch.arange(-600.0, 600, dtype=torch.float64), torch.tensor(-26))
    x = torch.cat([numbers, ties, ties * 2.0**-124, ties * 2.0**38, ties * 2.0**148]).float()
    x = x[x.isfinite()]
    for dtype in NARROW:
        found = [oracle.correctly_rounded(mpf(value), dtype) for value in x.tolist()]
        assert found == rounded_elsewhere(x, dtype), dtype


def test_correctly_rounded_sees_what_is_beyond_float64() -> None:
    tie = mpf(1) + mpf(2) ** -8  # halfway between 1 and its successor in bfloat16
    nudge = mpf(2) ** -150
    assert oracle.correctly_rounded(tie, torch.bfloat16) == 1
    assert oracle.correctly_rounded(tie + nudge, torch.bfloat16) == 1 + 2.0**-7
    assert oracle.correctly_rounded(tie - nudge, torch.bfloat16) == 1


@pytest.mark.parametrize(
    "size", [20, pytest.param(500, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_results_for_every_input_are_those_to_60_digits(gate: str, size: int) -> None:
    """In a sample of them, zeros with their signs."""
    for dtype, order in product(HALF, ORDERS):
        x = oracle.every_16_bit_input(dtype)
        results = oracle.correctly_rounded_results(gate, order, dtype)
        assert results[~x.isfinite()].isnan().all()
        chosen = torch.nonzero(x.isfinite() & (x != 0))[:, 0]  # mpmath has no -0
        chosen = chosen[torch.randperm(len(chosen))[:size]]
        for number, result in zip(x[chosen].tolist(), results[chosen].tolist(), strict=True):
            expected = oracle.correctly_rounded(oracle.exact(gate, order, number), dtype)
            assert result.hex() == expected.hex(), (dtype, order, number)


def test_ulp_errors() -> None:
    for dtype in NARROW:
        y = torch.tensor([1.0, -1.5, 2.0**-14, torch.finfo(dtype).smallest_normal], dtype=dtype)
        unit = torch.nextafter(y.abs(), torch.full_like(y, torch.inf)).double() - y.double().abs()
        expected = (y.double() + 0.75 * unit).numpy()
        assert oracle.ulp_errors(y, expected).tolist() == [0.75] * 4, dtype
        exact = [mpf(e) for e in expected]
        assert oracle.exact_ulp_errors(y, exact).tolist() == [0.75] * 4, dtype


def test_the_last_place_of_zero_is_that_of_subnormals() -> None:
    for dtype in oracle.FORMATS:
        smallest = torch.nextafter(torch.zeros(1, dtype=dtype), torch.ones(1, dtype=dtype))
        y = torch.cat([0 * smallest, 3 * smallest])
        assert oracle.exact_ulp_errors(y, [mpf(0)] * 2).tolist() == [0, 3], dtype
