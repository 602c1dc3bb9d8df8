"""Polynomials with machine numbers for coefficients that stay inside given intervals."""

from collections.abc import Callable, Mapping

import mpmath
import numpy as np
import scipy.optimize

mpmath.mp.prec = 160

Rounding = Callable[[mpmath.mpf], mpmath.mpf]

exact = np.frompyfunc(mpmath.mpf, 1, 1)  # object arrays of mpf keep what float64 would lose


def to_float32(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.mpf(float(np.float32(float(x))))


def to_float64(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.mpf(float(x))


ROUNDINGS: dict[str, Rounding] = {"float": to_float32, "double": to_float64}


def power_of_two(x: float) -> str:
    return f"2^{np.log2(x):.1f}"


def chebyshev_points(low: float, high: float, count: int) -> np.ndarray:
    """Points dense at both ends, the ends included: where a minimax error peaks."""
    return (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * np.arange(count) / (count - 1))


def powers(x: np.ndarray, exponents: range | list[int]) -> np.ndarray:
    return np.stack([exact(x) ** k for k in exponents], axis=1)


def _largest_slack(basis: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The c that maximises s subject to low + s <= basis @ c <= high - s (a linear program)."""
    orthogonal, triangle = np.linalg.qr(basis)
    orthogonal *= np.sqrt(len(basis))
    slack = np.ones((len(basis), 1))
    rows = np.vstack([np.hstack([orthogonal, slack]), np.hstack([-orthogonal, slack])])
    bounds = np.concatenate([high, -low])
    finite = np.isfinite(bounds)
    cost = np.zeros(rows.shape[1])
    cost[-1] = -1.0
    solution = scipy.optimize.linprog(
        cost, A_ub=rows[finite], b_ub=bounds[finite], bounds=(None, None), method="highs-ds"
    )
    if not solution.success:
        raise ArithmeticError(solution.message)
    return np.linalg.solve(triangle, solution.x[:-1] * np.sqrt(len(basis)))


def fit(
    basis: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    weight: np.ndarray,
    rounding: Rounding,
    fixed: Mapping[int, float] | None = None,
) -> tuple[list[float], float]:
    """Coefficients c with low + s*weight <= basis @ c <= high - s*weight for the largest s, and s.

    low = high asks for the minimax approximation: its weighted error is -s. Coefficients are
    rounded one at a time, the lowest first, and the rest are fitted again to make up for the
    rounding. Arrays hold mpf; the linear program sees only what the current polynomial leaves of
    them, so float64 serves it even for a fit to 2^-60.
    """
    count = basis.shape[1]
    c = exact(np.zeros(count))
    settled = dict(fixed or {})
    for k, value in settled.items():
        c[k] = mpmath.mpf(value)
    scaled = (basis / weight[:, None]).astype(float)
    for k in [None, None, *range(count)]:  # the second pass refines the first
        if k in settled:
            continue
        if k is not None:
            settled[k] = c[k] = rounding(c[k])
        free = [j for j in range(count) if j not in settled]
        value = basis @ c
        below, above = ((bound - value) / weight for bound in (low, high))
        if free:
            unit = float(np.median(np.abs(below.astype(float))))
            step = _largest_slack(
                scaled[:, free], below.astype(float) / unit, above.astype(float) / unit
            )
            c[free] = c[free] + exact(step * unit)
    return [float(x) for x in c], float(min(np.min(above), np.min(-below)))
