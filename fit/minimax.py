"""Polynomials with machine numbers for coefficients that stay inside given intervals.

Floating-point linear algebra rounds differently on different processors. Here integers and mpf
decide every digit, so the results are the same everywhere.
"""

import math
from collections.abc import Callable, Mapping

import mpmath
import numpy as np

mpmath.mp.prec = 160

Rounding = Callable[[mpmath.mpf], mpmath.mpf]

exact = np.frompyfunc(mpmath.mpf, 1, 1)  # object arrays of mpf keep what float64 would lose


def to_float32(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.mpf(float(np.float32(float(x))))


def to_float64(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.mpf(float(x))


ROUNDINGS: dict[str, Rounding] = {"float": to_float32, "double": to_float64}


def power_of_two(x: float) -> str:
    return f"2^{math.log2(x):.1f}"


def chebyshev_points(low: float, high: float, count: int) -> np.ndarray:
    """Points dense near both ends, which they include: there a minimax error peaks most often."""
    cosines = [mpmath.cospi(mpmath.mpf(k) / (count - 1)) for k in range(count)]
    return (low + high) / 2 + (high - low) / 2 * np.array(cosines)


def powers(x: np.ndarray, exponents: range | list[int]) -> np.ndarray:
    return np.stack([exact(x) ** k for k in exponents], axis=1)


BITS = 320  # the integers of the linear program count units of 2^-BITS
ONE = 1 << BITS
NEGLIGIBLE = ONE >> 128
FAR = ONE << 64  # beyond every coefficient and every finite bound


def _fixed_point(x: mpmath.mpf) -> int:
    return int(mpmath.ldexp(x, BITS)) if mpmath.isfinite(x) else int(mpmath.sign(x)) * FAR


fixed_point = np.frompyfunc(_fixed_point, 1, 1)


class LargestSlack:
    """The c that maximises s subject to low + s <= basis @ c <= high - s, by the dual simplex.

    As many of the constraints row @ (c, s) <= bound hold with equality as there are unknowns. Each
    step lets in the constraint that is violated most. At first every coefficient is held at FAR.
    """

    def __init__(self, basis: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
        self.basis, self.low, self.high = (fixed_point(x) for x in (basis, low, high))

        # c_k is held on the side where high[0] allows a large s, for multipliers >= 0.
        first = self.basis[0]
        sides = np.where(first > 0, -1, 1).astype(object)
        self.inverse = np.diag([*(sides * ONE), ONE])  # of the rows that hold with equality
        self.inverse[-1, :-1] = -first * sides
        self.equal_to = np.array([*(FAR for _ in first), self.high[0]])
        self.may_leave = np.ones(len(self.equal_to), dtype=bool)

    def unknowns(self) -> np.ndarray:
        return self.inverse @ self.equal_to >> BITS

    def enter(self, row: np.ndarray, bound: int) -> int:
        """Lets a row in, and returns the one it replaces to keep all multipliers >= 0."""
        combination = row @ self.inverse >> BITS
        multipliers = self.inverse[-1]
        leaving = min(
            np.flatnonzero(self.may_leave & (combination > NEGLIGIBLE)),
            key=lambda i: (multipliers[i] << BITS) // combination[i],
        )
        column = (self.inverse[:, leaving] << BITS) // combination[leaving]
        self.inverse = self.inverse - (np.outer(column, combination) >> BITS)
        self.inverse[:, leaving] = column
        self.equal_to[leaving] = bound
        return leaving

    def solve(self) -> np.ndarray:
        while True:
            unknowns = self.unknowns()
            value = self.basis @ unknowns[:-1] >> BITS
            above, below = value - self.high, self.low - value
            side, excess = (1, above) if above.max() > below.max() else (-1, below)
            worst = excess.argmax()
            if excess[worst] + unknowns[-1] < NEGLIGIBLE:
                return np.array([mpmath.ldexp(int(x), -BITS) for x in unknowns])
            bound = self.high[worst] if side > 0 else -self.low[worst]
            self.enter(np.append(side * self.basis[worst], ONE), bound)

    def settle(self, k: int, value: mpmath.mpf) -> None:
        """Holds c_k at a value from here on."""
        bound = fixed_point(value)
        side = 1 if self.unknowns()[k] > bound else -1
        row = np.zeros(len(self.equal_to), dtype=object)
        row[k] = side * ONE
        self.may_leave[self.enter(row, side * bound)] = False


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
    rounding. Arrays hold mpf.
    """
    program = LargestSlack(basis / weight[:, None], low / weight, high / weight)
    settled = {k: mpmath.mpf(value) for k, value in (fixed or {}).items()}
    for k, value in settled.items():
        program.settle(k, value)
    for k in range(basis.shape[1]):
        if k not in settled:
            settled[k] = rounding(program.solve()[k])
            program.settle(k, settled[k])
    slack = program.solve()[-1]
    return [float(settled[k]) for k in range(basis.shape[1])], float(slack)
