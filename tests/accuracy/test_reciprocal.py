"""The `reciprocal` of csrc/gates/arithmetic.h on a GPU: two steps of Newton's from any estimate
that the special function unit may give. The last significand is left to the unit."""

import numpy as np
import pytest


def fma(x: np.ndarray, y: np.ndarray, z: np.ndarray | float) -> np.ndarray:
    """x y + z for floats, rounded once: the sum in double is rounded to odd before it is rounded to
    float."""
    product = x.astype(np.float64) * y  # exact
    total = product + z
    carried = total - product
    error = (product - (total - carried)) + (z - carried)  # Knuth's two-sum
    even = (total.view(np.int64) & 1) == 0
    towards = np.where(error > 0, np.inf, -np.inf)
    odd = np.where((error != 0) & even, np.nextafter(total, towards), total)
    return odd.astype(np.float32)


@pytest.mark.parametrize("units", range(-2, 3))
def test_the_hardest_significands(units: int) -> None:
    """Whose inverse is close to the middle between two floats: the others are easy.
    rcp.approx.ftz.f32 is off by at most 2^-23, which is two units of a float's last place."""
    x = np.arange(0x3F800000, 0x40000000, dtype=np.uint32).view(np.float32)
    x = x[np.abs(2.0**24 / x.astype(np.float64) % 1 - 0.5) < 2**-9]
    assert len(x) > 10_000 and x[-1] == np.nextafter(np.float32(2), np.float32(0))
    exact = np.float32(1) / x
    y = (exact.view(np.int32) + units).view(np.float32)
    for _ in range(2):
        y = fma(y, fma(-x, y, np.float32(1)), y)
    assert np.array_equal(y[:-1], exact[:-1])
