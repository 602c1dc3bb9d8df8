"""Fits the polynomials of the gate x Phi(x), for csrc/gates/normal.h."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import mpmath
import numpy as np
from mpmath import mpf

from fit import exp2, half, minimax
from fit.coefficients import Constants, Polynomial, write
from gelu_kernels.formulas import coefficients as numbers
from gelu_kernels.formulas import normal

SQRT_TAU = mpmath.sqrt(2 * mpmath.pi)
HALF_LOG2E = 1 / (2 * mpmath.log(2))


def upper_tail(a: mpf) -> mpf:
    """Phi(-a)."""
    return mpmath.erfc(a / mpmath.sqrt(2)) / 2


def tail_derivative(a: mpf) -> mpf:
    """D(a) = Phi(-a) - a phi(a), the derivative of x Phi(x) at x = -a."""
    return upper_tail(a) - a * mpmath.exp(-a * a / 2) / SQRT_TAU


ROOT = mpmath.findroot(tail_derivative, 0.75)

SLOPE = float(minimax.to_float32(1 / (2 * ROOT)))


@dataclass(frozen=True)
class Wide:
    """The formula for fp32 and fp64.

    a Phi(-a) = z P(z) e^(-a^2/2) with z = value_pole a/(a + value_pole), and
    D(a) = (root - a) U(v) e^(-a^2/2) with v = a/(a + derivative_pole).
    """

    precision: str
    real: str
    limit: float  # beyond it g(x) - max(x, 0), g'(x) - [x > 0] and g''(x) round to zero
    log2_scale: int  # of what e^(-a^2/2) is multiplied by, to keep it normal
    fraction_bits: int
    exponent_bias: int
    value_pole: float
    value_centre: float
    value_degree: int
    derivative_pole: float
    derivative_centre: float
    derivative_degree: int

    @property
    def rounding(self) -> minimax.Rounding:
        return minimax.ROUNDINGS[self.real]

    def fit(
        self, target: Callable[[mpf], mpf], pole: float, scale: float, centre: float, degree: int
    ) -> tuple[list[float], float]:
        """Fits target(a) 2^(k a^2) in powers of scale a/(a + pole) - centre.

        k is log2(e)/2 rounded, as in the 2^(-k a^2) that the gate multiplies by.
        """
        k = self.rounding(HALF_LOG2E)
        v = minimax.chebyshev_points(0, self.limit / (self.limit + pole), 300)
        goal = np.array([target(a) * mpf(2) ** (k * a * a) for a in pole * v / (1 - v)])
        basis = minimax.powers(scale * v - centre, range(degree + 1))
        c, slack = minimax.fit(basis, goal, goal, goal, self.rounding)
        return c, -slack

    def fit_value(self) -> tuple[list[float], float]:
        pole = self.value_pole
        return self.fit(
            lambda a: upper_tail(a) * (1 + a / pole),
            pole,
            pole,
            self.value_centre,
            self.value_degree,
        )

    def fit_derivative(self) -> tuple[list[float], float]:
        return self.fit(
            lambda a: tail_derivative(a) / (ROOT - a),
            self.derivative_pole,
            1.0,
            self.derivative_centre,
            self.derivative_degree,
        )

    def constants(self) -> Constants:
        root = self.rounding(ROOT)
        values = {
            "limit": self.limit,
            "value_pole": self.value_pole,
            "derivative_pole": self.derivative_pole,
            "root_hi": root,
            "root_lo": self.rounding(ROOT - root),
            "half_log2e": self.rounding(HALF_LOG2E),
            "density": self.rounding(1 / SQRT_TAU),
            "unscale": 2.0**-self.log2_scale,
            "origin": 1.5 * 2.0**self.fraction_bits + self.exponent_bias + self.log2_scale,
        }
        if self.real == "float":
            values |= {"tail_limit": TAIL_LIMIT, "share": SHARE, "ratio_pole": RATIO_POLE}
        return Constants("NormalConstants", self.precision, values, self.real)

    def polynomials(self) -> list[Polynomial]:
        value, value_error = self.fit_value()
        derivative, derivative_error = self.fit_derivative()
        remainder = HALF_LOG2E - self.rounding(HALF_LOG2E)
        density = [1 / SQRT_TAU, -remainder * mpmath.log(2) / SQRT_TAU]
        error = minimax.power_of_two
        return [
            Polynomial(
                "normal_value_factor",
                "z",
                value,
                f"Phi(-a) 2^(k a^2) a/z for z = {self.value_pole} a / (a + {self.value_pole}) and "
                f"a <= {self.limit}; relative error {error(value_error)}.",
                self.real,
                self.value_centre,
            ),
            Polynomial(
                "normal_derivative_factor",
                "v",
                derivative,
                f"D(a) 2^(k a^2) / (root - a) for v = a / (a + {self.derivative_pole}) and "
                f"a <= {self.limit}; relative error {error(derivative_error)}.",
                self.real,
                self.derivative_centre,
            ),
            Polynomial(
                "normal_density_factor",
                "s",
                [self.rounding(c) for c in density],
                "phi(a) 2^(k s) for s = a^2: 1/sqrt(2 pi), and what rounding k leaves.",
                self.real,
            ),
        ]


WIDE = [
    Wide("fp32", "float", 14.75, 32, 23, 127, 2.5, 0.0, 9, 4.0, 0.0, 7),
    Wide("fp64", "double", 38.8125, 96, 52, 1023, 2.5, 1.25, 26, 4.0, 0.5, 20),
]


DERIVATIVE_RATIO_LIMIT = 6  # beyond it D(a) is 0 beside 1


@dataclass(frozen=True)
class Half:
    """The formula for 16-bit results.

    Phi(-a) = 2^(-1 + a h(a)), and D(a) = (1/2 - slope a) 2^(a h(a)) with another h. The polynomials
    put every input inside its rounding interval, subnormal results included. Beyond the range of
    the fit they keep falling. At its limit a value rounds to zero, and so does a derivative times
    the largest 16-bit number.

    The 2^f of a value has `one` as its constant term. The hardest case of fp16, |x| = 0x1.5fp-10,
    needs it above 1; powers are then limited to a little less than 1/2 (see csrc/gates/storage.h).
    """

    format: half.Format
    value_range: float
    value_limit: float
    derivative_range: float
    derivative_limit: float
    log2_scale: int
    one: float
    exp2_degree: int
    value_degree: int
    derivative_degree: int
    ratio_degree: int

    def exp2(self, one: float) -> tuple[numbers.Polynomial, float]:
        """2^f with the constant term `one`, and the error of 2^f with the constant term 1."""
        power, error = exp2.fit(self.exp2_degree, minimax.to_float32)
        return numbers.Polynomial(0.0, (one, *power[1:])), error

    def fit(
        self,
        problem: Callable[..., half.Problem],
        function: Callable[[np.ndarray, numbers.Constants], np.ndarray],
        name: str,
        end: float,
        degree: int,
    ) -> list[float]:
        """Fits the polynomial `name` of the constants that `function` takes."""
        value_exp2, _ = self.exp2(self.one)
        power, error = self.exp2(1.0)
        C = numbers.Constants(
            form="half", **self.constants().values, value_exp2=value_exp2, exp2=power
        )

        def formula(x: np.ndarray, h: np.ndarray) -> np.ndarray:
            return function(x, C.replace(**{name: numbers.Polynomial(0.0, h)}))

        a = self.format.numbers(2.0**-13, end)
        return half.fit(problem(self, a, formula), degree, error)

    def polynomials(self) -> list[Polynomial]:
        name = self.format.name
        every = f"Every {name} input falls inside its rounding interval."
        value = self.fit(
            value_problem, normal.value, "log2_cdf", self.value_range, self.value_degree
        )
        derivative = self.fit(
            derivative_problem,
            normal.derivative,
            "log2_derivative",
            self.derivative_range,
            self.derivative_degree,
        )
        power, _ = self.exp2(self.one)
        comment = "2^f for |f| <= 1/2, of a value."
        return [
            Polynomial("normal_value_exp2", "f", power.coefficients, comment, tag=name),
            Polynomial("normal_log2_cdf", "a", value, f"(1 + log2 Phi(-a)) / a. {every}", tag=name),
            Polynomial(
                "normal_log2_derivative",
                "a",
                derivative,
                f"log2(D(a) / (1/2 - slope a)) / a. {every}",
                tag=name,
            ),
            self.derivative_ratio(),
        ]

    def derivative_ratio(self) -> Polynomial:
        """D(a) / Phi(-a), for a D(a) whose absolute error counts; 1 for a = 0."""
        a = minimax.chebyshev_points(0, DERIVATIVE_RATIO_LIMIT, 300)
        tail = np.array([upper_tail(x) for x in a])
        ratio = np.array([tail_derivative(x) for x in a]) / tail
        basis = minimax.powers(a, range(self.ratio_degree + 1))
        c, slack = minimax.fit(basis, ratio, ratio, 1 / tail, minimax.to_float32, {0: 1.0})
        unscale = 2.0**-self.log2_scale
        factor = f"{unscale} " if unscale < 1 else ""
        comment = (
            f"{factor}D(a) / Phi(-a) for a <= {DERIVATIVE_RATIO_LIMIT}; absolute error of D(a) "
            f"{minimax.power_of_two(-slack)} if Phi(-a) is exact."
        )
        scaled = [unscale * x for x in c]
        return Polynomial("normal_derivative_ratio", "a", scaled, comment, tag=self.format.name)

    def constants(self) -> Constants:
        values = {
            "value_limit": self.value_limit,
            "derivative_limit": self.derivative_limit,
            "unscale": 2.0**-self.log2_scale,
            "log2_scale": self.log2_scale,
            "one": self.one,
            "slope": SLOPE,
        }
        return Constants("NormalConstants", self.format.name, values, "float")


HALF = [
    Half(half.BF16, 13.625, 13.75, 13.8125, 14.0625, 16, 1.0, 4, 9, 10, 5),
    Half(half.FP16, 5.75, 11.0, 6.0625, 10.5, 0, 1 + 2.0**-23, 5, 8, 8, 6),
]


TAIL_LIMIT = 6.25  # beyond it 2^32 Phi(-a) is less than 1
TAIL_ROOT = 16
TAIL_DEGREE = 8


def tail_polynomial() -> Polynomial:
    """The 16th root of 2^32 Phi(-a), for a probability: it is so smooth that a low degree suffices.

    For small a the absolute error counts, and up to about 4 the relative one; beyond, where the
    tail hardly matters, the weight tolerates more.
    """
    a = minimax.chebyshev_points(0, TAIL_LIMIT, 300)
    goal = np.array([(2**32 * upper_tail(x)) ** (mpf(1) / TAIL_ROOT) for x in a])
    weight = goal * np.array([mpmath.exp(x * x / 8) for x in a])
    basis = minimax.powers(a, range(TAIL_DEGREE + 1))
    c, slack = minimax.fit(basis, goal, goal, weight, minimax.to_float32)
    comment = (
        f"(2^32 Phi(-a))^(1/{TAIL_ROOT}) for a <= {TAIL_LIMIT}; relative error of Phi(-a) "
        f"{minimax.power_of_two(-TAIL_ROOT * slack)} e^(a^2/8)."
    )
    return Polynomial("normal_tail_root", "a", c, comment)


LOGIT_LIMIT = 4  # beyond it 2^16 Phi(-x) is about 2 and less
LOGIT_DEGREE = 2


def logit_polynomial() -> Polynomial:
    """The logit of Phi(x), for an estimate of Phi(x) whose absolute error counts.

    Beyond the limit the estimate takes the logit's factor of x as it is there.
    """
    x = minimax.chebyshev_points(1 / 16, LOGIT_LIMIT, 300)
    tail = np.array([upper_tail(number) for number in x])
    goal = -np.array([mpmath.log(1 / t - 1, 2) for t in tail]) / x
    weight = 1 / (x * np.array([max(t * (1 - t), 2.0**-19) for t in tail]) * mpmath.log(2))
    basis = minimax.powers(x * x, range(LOGIT_DEGREE + 1))
    c, slack = minimax.fit(basis, goal, goal, weight, minimax.to_float32)
    comment = (
        f"log2(Phi(-x)/Phi(x)) / x for s = x^2 and |x| <= {LOGIT_LIMIT}; error of Phi(x) "
        f"{minimax.power_of_two(-slack)}."
    )
    return Polynomial("normal_logit", "s", c, comment)


@dataclass(frozen=True)
class Tail:
    """Phi(-a) = 2^(-1 + s h(s)) to a relative error, for 16-bit results of a location and a scale;
    s = share a. Up to `end` all errors count alike. Beyond, where results underflow, the weight
    tolerates more; at s = 1 they have vanished."""

    precision: str
    share: float
    end: float
    degree: int

    def polynomial(self) -> Polynomial:
        s = minimax.chebyshev_points(mpf(2) ** -10, 1, 300)
        goal = np.array([(1 + mpmath.log(upper_tail(x / self.share), 2)) / x for x in s])
        tolerance = np.array([mpmath.exp(max(0, 3 * (x / self.share - self.end))) for x in s])
        basis = minimax.powers(s, range(self.degree + 1))
        c, slack = minimax.fit(basis, goal, goal, tolerance / s, minimax.to_float32)
        comment = (
            f"(1 + log2 Phi(-a)) / s for s = {self.share} a; relative error of Phi(-a) "
            f"{minimax.power_of_two(-slack * math.log(2))} for a <= {self.end}."
        )
        return Polynomial("normal_tail_log2", "s", c, comment, tag=self.precision)


TAILS = [Tail("bf16", 1 / 16, 13.5, 8), Tail("fp16", 1 / 8, 6.0, 7)]

SHARE = 1 / 16  # of a density and its tail
RATIO_POLE = 4 * SHARE
RATIO_DEGREE = 7


def ratio_polynomial() -> Polynomial:
    """Phi(-a) / phi(a), Mills's ratio. Far from zero, where the tail is little beside 1, the weight
    tolerates more."""
    t = minimax.chebyshev_points(1 / (1 + RATIO_POLE), 1 / RATIO_POLE, 300)
    a = (1 / t - RATIO_POLE) / SHARE
    ratio = np.array([upper_tail(x) * SQRT_TAU * mpmath.exp(x * x / 2) for x in a])
    weight = ratio * np.array([1 + mpf(3) / 4 * min(max(x - 1, 0), 2) for x in a])
    basis = minimax.powers(t, range(RATIO_DEGREE + 1))
    c, slack = minimax.fit(basis, ratio, ratio, weight, minimax.to_float32)
    comment = (
        f"Phi(-a) / phi(a) for t = 1 / (s + {RATIO_POLE}) and s = {SHARE} a <= 1; relative error "
        f"{minimax.power_of_two(-slack)} for a <= 1, and 2.5 times that for a >= 3."
    )
    return Polynomial("normal_ratio", "t", c, comment)


def density_exp2() -> Polynomial:
    f = minimax.chebyshev_points(-0.5, 0.5, 400)
    goal = np.array([mpf(2) ** x / SQRT_TAU for x in f])
    basis = minimax.powers(f, range(6))
    c, slack = minimax.fit(basis, goal, goal, goal, minimax.to_float32)
    comment = f"phi(0) 2^f for |f| <= 1/2; relative error {minimax.power_of_two(-slack)}."
    return Polynomial("normal_density_exp2", "f", c, comment)


def value_problem(form: Half, a: np.ndarray, formula: half.Formula) -> half.Problem:
    tail = a * np.array([upper_tail(mpf(x)) for x in a])
    factor = a * form.one
    return half.problem(form.format, a, a, factor, tail, formula, offset=-1, sign=1, ties="either")


def derivative_problem(form: Half, a: np.ndarray, formula: half.Formula) -> half.Problem:
    tail = np.array([tail_derivative(mpf(x)) for x in a])
    factor = (0.5 - SLOPE * a).astype(np.float32).astype(float)
    one = np.ones_like(a)
    return half.problem(form.format, a, one, factor, tail, formula, offset=0, sign=-1, ties="even")


def main() -> None:
    forms = [*WIDE, *HALF]
    constants = [form.constants() for form in forms]
    polynomials = [polynomial for form in forms for polynomial in form.polynomials()]
    polynomials += [tail_polynomial(), logit_polynomial()]
    polynomials += [tail.polynomial() for tail in TAILS]
    write("fit.normal", [*constants, *polynomials, ratio_polynomial(), density_exp2()])


if __name__ == "__main__":
    main()
