"""Fits for 16-bit results: polynomials that put every input inside its rounding interval."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import mpmath
import numpy as np

from fit import minimax


@dataclass(frozen=True)
class Format:
    name: str
    precision: int  # bits of the significand, the hidden one included
    smallest_exponent: int  # of a normal number

    def numbers(self, low: float, high: float) -> np.ndarray:
        """The numbers in [low, high], all normal, ascending."""
        exponents = np.arange(np.floor(np.log2(low)), np.floor(np.log2(high)) + 1)
        significands = np.arange(2 ** (self.precision - 1), 2**self.precision)
        x = np.ldexp(significands, (exponents[:, None] - self.precision + 1).astype(int)).ravel()
        return x[(low <= x) & (x <= high)]

    def floats(self, y: np.ndarray, ties: str) -> tuple[np.ndarray, np.ndarray]:
        """The least and the greatest float that round to the number nearest to y.

        `ties` says how a float halfway between two numbers is rounded: "even"; "up", to plus
        infinity; or "either", which keeps only the floats that are right for both.
        """
        exponent = np.maximum(np.frexp(y)[1] - 1, self.smallest_exponent)
        spacing = np.ldexp(1.0, exponent - self.precision + 1)
        nearest = np.rint(np.abs(y) / spacing)
        # Below a power of two the spacing is half as wide.
        is_power = (nearest == 2 ** (self.precision - 1)) & (exponent > self.smallest_exponent)
        inner = np.sign(y) * (nearest - np.where(is_power, 0.25, 0.5)) * spacing
        outer = np.sign(y) * (nearest + 0.5) * spacing
        low, high = (end(inner, outer).astype(np.float32) for end in (np.minimum, np.maximum))
        is_even = nearest % 2 == 0
        keep_low = True if ties == "up" else is_even
        keep_high = is_even if ties == "even" else False
        infinity = np.float32(np.inf)
        return (
            np.where(keep_low, low, np.nextafter(low, infinity)),
            np.where(keep_high, high, np.nextafter(high, -infinity)),
        )


BF16 = Format("bf16", 8, -126)
FP16 = Format("fp16", 11, -14)


RESTARTS, TRIALS = 20, 3000
STEP = 3 * 2.0**-8  # of the roundings of an evaluation; the quickest of several that were tried

Log2 = Callable[[np.ndarray], np.ndarray]
Formula = Callable[[np.ndarray, np.ndarray], np.ndarray]  # of x and of the coefficients of h

exact_log2 = np.frompyfunc(lambda x: mpmath.log(x, 2), 1, 1)


def fast_log2(x: np.ndarray) -> np.ndarray:
    """The last digits of the result depend on the processor."""
    with np.errstate(divide="ignore"):
        return np.log2(x.astype(float))


@dataclass(frozen=True)
class Problem:
    """base - factor 2^(offset + a h(a)) is to round as base - tail does, for every row."""

    formula: Formula
    offset: int
    x: np.ndarray
    a: np.ndarray
    base: np.ndarray
    factor: np.ndarray
    tail: np.ndarray  # of mpf
    low: np.ndarray
    high: np.ndarray

    def select(self, rows: np.ndarray) -> "Problem":
        formula, offset, *columns = (getattr(self, field.name) for field in fields(self))
        return Problem(formula, offset, *(column[rows] for column in columns))

    def exponents(self, log2: Log2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The lower bound of offset + a h(a), its exact value, and its upper bound."""
        low = self.low - np.spacing(np.abs(self.low)).astype(float) / 2  # y is rounded to a float
        high = self.high + np.spacing(np.abs(self.high)).astype(float) / 2
        ends = (self.base - high) / self.factor, (self.base - low) / self.factor
        low, high = (log2(np.maximum(e, 0)) for e in (np.minimum(*ends), np.maximum(*ends)))
        return low, log2(self.tail / self.factor), high

    def noise(self, exact: np.ndarray, exp2_error: float) -> np.ndarray:
        """How far roundings may move offset + a h(a) from its exact value."""
        return 2.0**-24 * np.abs(exact - self.offset) + exp2_error + 2.0**-24

    def misses(self, h: np.ndarray) -> int:
        """How many rows the gate's formula gets wrong."""
        y = self.formula(self.x, h)
        return int(np.count_nonzero((y < self.low) | (self.high < y)))


def problem(
    fmt: Format,
    a: np.ndarray,
    base: np.ndarray,
    factor: np.ndarray,
    tail: np.ndarray,
    formula: Formula,
    *,
    offset: int,
    sign: int,
    ties: str,
) -> Problem:
    """The results base - tail, for x = a, and -sign tail, for x = -a."""
    base = np.concatenate([base, np.zeros_like(base)])
    factor = np.concatenate([factor, sign * factor])
    tail = np.concatenate([tail, sign * tail])
    low, high = fmt.floats((base - tail).astype(float), ties)
    x = np.concatenate([a, -a]).astype(np.float32)
    return Problem(formula, offset, x, np.tile(a, 2), base, factor, tail, low, high)


def orthogonal_steps(basis: np.ndarray) -> np.ndarray:
    """As rows, combinations of the basis that are orthogonal to each other, of mean square 1."""
    fixed = minimax.fixed_point(basis)
    gram = mpmath.matrix((fixed.T @ fixed).tolist()) / (len(basis) * minimax.ONE**2)
    return np.array(mpmath.inverse(mpmath.cholesky(gram)).tolist()).astype(float)


def fit(problem: Problem, degree: int, exp2_error: float) -> list[float]:
    """The coefficients of h, for the given degree of a h(a), without a miss.

    The solution of the linear program may get a few of the hardest rows wrong, because evaluating
    it rounds. A random walk, in steps smaller than those roundings, finds a polynomial that gets
    every row right.

    Every digit of the result follows from integers, mpf, or sums of floats in a fixed order.
    fast_log2 only selects rows, and none of them lies within 1e-5 of a threshold.
    """
    low, exact, high = problem.exponents(fast_log2)
    room = np.minimum(high - exact, exact - low) / problem.noise(exact, exp2_error)
    hard = room < 300
    hard[::50] = True  # where every interval is wide, enough rows to hold the polynomial
    hardest = problem.select(room < 20)

    held = problem.select(hard)
    low, exact, high = held.exponents(exact_log2)
    noise = held.noise(exact, exp2_error)
    # So that a float between two 16-bit inputs is within half a unit and a sixteenth as well.
    sixteenth = (high - low) / 16
    low, high = np.maximum(low, exact - sixteenth), np.minimum(high, exact + sixteenth)
    basis = minimax.powers(held.a, range(degree + 1))
    offset = {0: float(problem.offset)}
    c, _ = minimax.fit(basis, low, high, noise, minimax.to_float32, offset)

    return walk(c[1:], basis[:, 1:] / noise[:, None], hardest.misses, problem.misses)


def walk(
    start: list[float],
    basis: np.ndarray,
    hardest_misses: Callable[[np.ndarray], int],
    misses: Callable[[np.ndarray], int],
) -> list[float]:
    """The first coefficients without a miss on a random walk from `start`.

    `basis` has a row for each result, in units of its rounding noise.
    """
    steps = STEP * orthogonal_steps(basis)
    for seed in range(RESTARTS):
        random = np.random.default_rng(seed)
        best, fewest = np.array(start), math.inf
        for _ in range(TRIALS):
            counts = random.integers(-4, 5, size=best.size)
            moved = best + sum(n * step for n, step in zip(counts, steps, strict=True))
            coefficients = moved.astype(np.float32)
            count = hardest_misses(coefficients)
            if count <= fewest:
                best, fewest = moved, count
            if count == 0 and misses(coefficients) == 0:
                return [float(x) for x in coefficients]
    raise ArithmeticError(f"no coefficients without a miss among {RESTARTS * TRIALS}")
