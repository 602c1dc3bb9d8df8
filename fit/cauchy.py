"""Fits the polynomials of the gate x (1/2 + atan(x)/pi), for csrc/gates/cauchy.h."""

from collections.abc import Callable
from dataclasses import dataclass, fields

import mpmath
import numpy as np
from mpmath import mpf

from fit import half, minimax
from fit.coefficients import Constants, Polynomial, write
from gelu_kernels.formulas import cauchy
from gelu_kernels.formulas import coefficients as numbers

PI = mpmath.pi


def upper_tail(a: mpf) -> mpf:
    """F(-a), which is P(X > a)."""
    return mpmath.atan2(1, a) / PI


def tail_derivative(a: mpf) -> mpf:
    """D(a) = F(-a) - a F'(a), the derivative of x F(x) at x = -a."""
    return upper_tail(a) - a / (PI * (1 + a * a))


def arctangent(s: mpf) -> mpf:
    """atan(q) / (pi q) for s = q^2."""
    return mpmath.atan(mpmath.sqrt(s)) / (PI * mpmath.sqrt(s))


@dataclass(frozen=True)
class Wide:
    """The formula for fp32 and fp64."""

    precision: str
    real: str
    exponent_limit: int  # 2^exponent_limit and its inverse are normal numbers
    square_limit: float  # 1/square_limit^2 is a normal number, 1/(pi square_limit^2) is not
    value_degree: int
    near_degree: int
    far_degree: int

    # q = a up to here and 1/a beyond. Less would make the polynomials longer, more would let D
    # cancel further in 1/2 - (1/2 - D).
    split = 0.875
    near_centre, far_centre = 0.375, 0.625  # of q^2: about zero the terms would cancel

    @property
    def rounding(self) -> minimax.Rounding:
        return minimax.ROUNDINGS[self.real]

    def constants(self) -> Constants:
        values = {
            "limit": 2.0**self.exponent_limit,
            "huge": 2.0 ** (self.exponent_limit - 25),
            "huge_scale": 2.0 ** -(self.exponent_limit // 2),
            "square_limit": self.square_limit,
            "split": self.split,
            "near_centre": self.near_centre,
            "far_centre": self.far_centre,
            "one_over_pi": self.rounding(1 / PI),
            "two_over_pi": self.rounding(2 / PI),
        }
        if self.real == "float":
            values |= {"half_limit": 2.0**60, "tail_limit": TAIL_LIMIT}
        return Constants("CauchyConstants", self.precision, values, self.real)

    def fit(
        self,
        name: str,
        argument: str,
        comment: str,
        target: Callable[[mpf], mpf],
        weight: Callable[[mpf], mpf],
        end: float,
        degree: int,
        centre: float = 0.0,
    ) -> Polynomial:
        """Fits `target` in powers of s - centre up to s = `end`; errors relative to `weight`."""
        s = minimax.chebyshev_points(mpf(2) ** -60, mpf(end), 300)
        goal = np.array([target(x) for x in s])
        basis = minimax.powers(s - centre, range(degree + 1))
        c, slack = minimax.fit(basis, goal, goal, np.array([weight(x) for x in s]), self.rounding)
        comment = f"{comment}; relative error {minimax.power_of_two(-slack)}."
        return Polynomial(name, argument, c, comment, self.real)

    def polynomials(self) -> list[Polynomial]:
        near, far = self.split**2, self.split**-2

        def far_target(s: mpf) -> mpf:
            return (arctangent(s) - 1 / (PI * (1 + s))) / s

        def derivative(s: mpf) -> mpf:
            return tail_derivative(mpmath.sqrt(s))

        def near_target(s: mpf) -> mpf:
            linear = mpf(1) / 2 - self.rounding(2 / PI) * mpmath.sqrt(s)
            return (derivative(s) - linear) / (s * mpmath.sqrt(s))

        return [
            self.fit(
                "cauchy_arctangent",
                "s",
                f"atan(q) / (pi q) for s = q^2 and q <= 1/{self.split}",
                arctangent,
                arctangent,
                far,
                self.value_degree,
            ),
            self.fit(
                "cauchy_derivative_near",
                "t",
                f"(D(a) - 1/2 + 2 a/pi) / a^3 for t = a^2 - {self.near_centre} and a <= "
                f"{self.split}, of D(a)",
                near_target,
                lambda s: derivative(s) / (s * mpmath.sqrt(s)),
                near,
                self.near_degree,
                self.near_centre,
            ),
            self.fit(
                "cauchy_derivative_far",
                "t",
                f"D(1/q) / q^3 for t = q^2 - {self.far_centre} and q <= 1/{self.split}",
                far_target,
                far_target,
                far,
                self.far_degree,
                self.far_centre,
            ),
        ]


WIDE = [
    Wide("fp32", "float", 125, 1.1875 * 2.0**62, 10, 8, 11),
    Wide("fp64", "double", 1000, 1.1875 * 2.0**510, 23, 19, 24),
]


HALF_ARCTANGENT_DEGREE = 5


def half_arctangent() -> Polynomial:
    """For the 16-bit results of a location and a scale."""
    s = minimax.chebyshev_points(mpf(2) ** -60, 1, 300)
    goal = np.array([arctangent(x) for x in s])
    basis = minimax.powers(s, range(HALF_ARCTANGENT_DEGREE + 1))
    c, slack = minimax.fit(basis, goal, goal, goal, minimax.to_float32)
    comment = (
        f"atan(q) / (pi q) for s = q^2 and q <= 1; relative error {minimax.power_of_two(-slack)}."
    )
    return Polynomial("cauchy_half_arctangent", "s", c, comment)


def arcsine(rho: mpf) -> mpf:
    """The t with asin(sqrt(rho)) = w (1 + pi rho t), where w = sqrt(rho (1 - rho))."""
    return (mpmath.asin(mpmath.sqrt(rho)) / mpmath.sqrt(rho * (1 - rho)) - 1) / (PI * rho)


@dataclass(frozen=True)
class Half:
    """The 16-bit results: each is start + slope t, where t is the fitted polynomial at rho."""

    x: np.ndarray
    is_value: np.ndarray
    rho: np.ndarray  # of mpf, like the next four
    start: np.ndarray
    slope: np.ndarray
    t: np.ndarray
    noise: np.ndarray  # how far roundings may move t
    low: np.ndarray
    high: np.ndarray

    @staticmethod
    def of(fmt: half.Format, end: float, function: str, sign: int) -> "Half":
        """The results of a function for inputs of one sign, up to `end`, where D rounds to 0."""
        magnitudes = fmt.numbers(2.0**-13, end)
        a = minimax.exact(magnitudes)
        r = 1 / (1 + a * a)
        w, is_far = a * r, magnitudes > 1
        rho = np.where(is_far, r, 1 - r)
        t = np.array([arcsine(x) for x in rho])
        side, offset = np.where(is_far, 1, -1), np.where(is_far, 0, mpf(1) / 2)
        # The tail F(-a) or D(a) is offset + side w (constant + rho t).
        is_value = function == "value"
        constant = 1 / PI if is_value else np.where(is_far, 0, 2 / PI)
        factor = -a if is_value else np.full_like(a, -sign)
        base = (a if is_value else np.full_like(a, mpf(1))) if sign > 0 else 0 * a
        start = base + factor * (offset + side * w * constant)
        slope = factor * side * w * rho
        y = start + slope * t
        noise = 2.0**-23 * abs(factor * w * (constant + rho * t)) + 2.0**-24 * abs(y)
        low, high = fmt.floats(y.astype(float), "either" if is_value else "even")
        columns = rho, start, slope, t, noise / abs(slope), low, high
        return Half(sign * magnitudes.astype(np.float32), np.full(a.shape, is_value), *columns)

    @staticmethod
    def all(fmt: half.Format, end: float) -> "Half":
        parts = [Half.of(fmt, end, f, s) for f in ("value", "derivative") for s in (1, -1)]
        names = [field.name for field in fields(Half)]
        return Half(*(np.concatenate([getattr(p, name) for p in parts]) for name in names))

    def select(self, rows: np.ndarray) -> "Half":
        return Half(*(getattr(self, field.name)[rows] for field in fields(self)))

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Of t."""
        low = minimax.exact(self.low - np.spacing(np.abs(self.low)) / np.float32(2))
        high = minimax.exact(self.high + np.spacing(np.abs(self.high)) / np.float32(2))
        ends = (low - self.start) / self.slope, (high - self.start) / self.slope
        return np.minimum(*ends), np.maximum(*ends)

    def misses(self, fp32: numbers.Constants, arcsine: np.ndarray) -> int:
        """How many results the gate's formulas get wrong."""
        C = cauchy.half_constants(fp32, numbers.Polynomial(0.0, arcsine))
        y = np.where(self.is_value, cauchy.value(self.x, C), cauchy.derivative(self.x, C))
        return int(np.count_nonzero((y < self.low) | (self.high < y)))


def half_polynomial(fmt: half.Format, end: float, degree: int) -> Polynomial:
    fp32 = numbers.Constants(**WIDE[0].constants().values)
    every = Half.all(fmt, end)
    low, high = every.bounds()
    room = np.minimum(high - every.t, every.t - low) / every.noise
    hard = room < 3000
    hard[::50] = True
    held, hardest = every.select(hard), every.select(room < 20)
    # So that a float between two 16-bit inputs is within half a unit and a sixteenth as well.
    low, high = low[hard], high[hard]
    sixteenth = (high - low) / 16
    low, high = np.maximum(low, held.t - sixteenth), np.minimum(high, held.t + sixteenth)
    basis = minimax.powers(held.rho, range(degree + 1))
    c, _ = minimax.fit(basis, low, high, held.noise, minimax.to_float32)
    c = half.walk(
        c,
        basis / held.noise[:, None],
        lambda c: hardest.misses(fp32, c),
        lambda c: every.misses(fp32, c),
    )
    comment = (
        "(asin(q) / (q sqrt(1 - rho)) - 1) / (pi rho) for rho = q^2. Value and derivative of every "
        f"{fmt.name} input fall inside their rounding intervals."
    )
    return Polynomial("cauchy_arcsine", "rho", c, comment, tag=fmt.name)


TAIL_LIMIT = 2.0**31  # beyond it 2^32 F(-a) is less than 1


def quotient(
    degrees: tuple[int, int], weigh: Callable[[mpf], mpf]
) -> tuple[list[float], list[float], float]:
    """F(-a) as a quotient of polynomials of these degrees, and its error relative to `weigh`."""
    top, bottom = degrees
    v = minimax.chebyshev_points(0, TAIL_LIMIT / (TAIL_LIMIT + 1), 300)
    a = v / (1 - v)
    tail = np.array([upper_tail(x) for x in a])
    weight = np.array([weigh(x) for x in tail])
    denominator = (1 + a) ** bottom
    for _ in range(10):  # each fit weighs its errors with the denominator of the last one
        basis = np.concatenate(
            [minimax.powers(a, range(top + 1)), -tail[:, None] * minimax.powers(a, range(bottom))],
            axis=1,
        )
        goal = tail * a**bottom / denominator
        c, slack = minimax.fit(basis / denominator[:, None], goal, goal, weight, minimax.to_float32)
        numerator, lower = c[: top + 1], [*c[top + 1 :], 1.0]
        denominator = sum(x * a**k for k, x in enumerate(lower))
    return numerator, lower, -slack


def tail_polynomials() -> list[Polynomial]:
    """2^32 F(-a), for a probability. What counts is the absolute error for small a and the relative
    one up to 4 or so; from F = 1/100 on, the relative error is 50 times that of F(0)."""
    numerator, denominator, error = quotient((3, 4), lambda x: min(1 / 2, 50 * x))
    comment = (
        f"2^32 F(-a) times the denominator for a <= 2^31; error of F(-a) "
        f"{minimax.power_of_two(error / 2)}, or a relative one 100 times as large."
    )
    return [
        Polynomial("cauchy_tail_numerator", "a", [2.0**32 * x for x in numerator], comment),
        Polynomial("cauchy_tail_denominator", "a", denominator, "What F(-a) is a quotient by."),
    ]


def estimate_polynomials() -> list[Polynomial]:
    """F(-a), for an estimate whose absolute error counts."""
    numerator, denominator, error = quotient((2, 3), lambda x: mpf(1))
    comment = f"F(-a) times the denominator; error of F(-a) {minimax.power_of_two(error)}."
    return [
        Polynomial("cauchy_estimate_numerator", "a", numerator, comment),
        Polynomial("cauchy_estimate_denominator", "a", denominator, "What F(-a) is a quotient by."),
    ]


def main() -> None:
    constants = [form.constants() for form in WIDE]
    polynomials = [polynomial for form in WIDE for polynomial in form.polynomials()]
    halves = [half_polynomial(half.BF16, 2.0**50, 5), half_polynomial(half.FP16, 65504, 7)]
    tails = [*tail_polynomials(), *estimate_polynomials(), half_arctangent()]
    write("fit.cauchy", [*constants, *polynomials, *halves, *tails])


if __name__ == "__main__":
    main()
