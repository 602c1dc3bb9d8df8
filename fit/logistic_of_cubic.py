"""Constants of the gates x sigmoid(k1 x + k3 x^3), as csrc/gates/logistic_of_cubic.h names them."""

from dataclasses import dataclass

import mpmath
import numpy as np
from mpmath import mpf

from fit import exp2, minimax
from fit.coefficients import Constants, write
from fit.half import BF16, FP16, Format
from gelu_kernels.formulas import logistic_of_cubic as family
from gelu_kernels.formulas.coefficients import Constants as Numbers

DEGREE = 5  # of 2^f for 16-bit results
LOG2E = 1 / mpmath.log(2)
SQRT_8_PI = mpmath.sqrt(8 / mpmath.pi)
GATES = {
    "NormalTanh": (SQRT_8_PI, SQRT_8_PI * mpf("0.044715")),
    "Logistic1702": (mpf("1.702"), mpf(0)),
    "Logistic": (mpf(1), mpf(0)),
}
# s = share a is 1 where F(-a) is under 2^-150 and has vanished. Up to there log2(E) + 64 is the
# exponent of a normal number.
SHARES = {
    "NormalTanh": mpf(23) / 256,
    "Logistic1702": mpf(1) / 64,
    "Logistic": mpf(1) / 128,
}


@dataclass(frozen=True)
class Real:
    """A type to evaluate in."""

    name: str
    rounding: minimax.Rounding
    log2_scale: int
    depth: int  # v(a) log2(e) at which both g(-a) and g'(-a) have underflowed to zero
    fraction_bits: int  # of a leading coefficient: as many as polynomial_step can do with

    def truncate(self, x: mpf) -> mpf:
        return mpmath.floor(mpmath.ldexp(x, self.fraction_bits)) / 2**self.fraction_bits


FLOAT = Real("float", minimax.to_float32, log2_scale=40, depth=163, fraction_bits=20)
DOUBLE = Real("double", minimax.to_float64, log2_scale=96, depth=1095, fraction_bits=47)


# exp(-v) at the derivative's root, in 4096ths of the unit in which the derivative counts exp(-v)
# and 1 + exp(-v); the unit cancels. 12 bits make root_exp 2^n - root_exp exact. How far a sum is
# rounded depends on where between powers of two it lies, so the unit was chosen by measurement: the
# largest errors of the derivative are 3.97 ULP (tanh), 3.67 (1.702) and 3.87 (SiLU) over all
# floats, where other units give up to 4.8, and 3.75, 3.45 and 3.15 over 300,000 doubles, where
# others give over 4.1.
ROOT_EXP = {
    ("NormalTanh", "float"): 2093,
    ("NormalTanh", "double"): 3380,
    ("Logistic1702", "float"): 4043,
    ("Logistic1702", "double"): 4044,
    ("Logistic", "float"): 2960,
    ("Logistic", "double"): 2963,
}


@dataclass(frozen=True)
class HalfUnit:
    """The unit of exp(-v) for 16-bit results.

    It cancels too, but shifts the roundings. Random walks from hundreds of units found these, which
    round the hardest results correctly.
    """

    unit: mpf
    below: int  # `one` is (1 - below 2^-24) unit
    k1_ulps: int  # added to k1
    ties: str  # of a value; see half.Format.floats


HALF_UNITS = {
    "NormalTanh": HalfUnit(mpf(1039) / 1024, 0, 0, "either"),
    "Logistic1702": HalfUnit(mpf(1042) / 1024, 0, 0, "either"),
    "Logistic": HalfUnit(mpf(1995) / 1024, 5, 1, "up"),
}


def constants(name: str, real: Real) -> dict[str, float]:
    k1, k3 = GATES[name]
    root_exp = mpf(ROOT_EXP[name, real.name]) / 4096

    def v(a: mpf) -> mpf:
        return k1 * a + k3 * a**3

    scale = mpf(2) ** real.log2_scale
    root = mpmath.findroot(lambda a: 1 + mpmath.exp(-v(a)) - (k1 * a + 3 * k3 * a**3), 0.75)
    limit = mpmath.findroot(lambda a: v(a) * LOG2E - real.depth, real.depth ** (1 / 3))
    w0, w1 = (k1 + k3 * root**2) * LOG2E, k3 * root * LOG2E
    h = [k1 + 9 * k3 * root**2, -9 * k3 * root, 3 * k3]

    one = scale * root_exp * mpmath.exp(v(root))
    scaled_h = [one * root_exp * x for x in h]

    lead = real.truncate if k3 else real.rounding  # a linear v has no use for polynomial_step
    k1_hi, k3_hi = lead(k1 * LOG2E), real.rounding(k3 * LOG2E)
    root_hi, w0_hi, w1_hi = real.rounding(root), lead(w0), lead(w1)
    values = {
        "log2_scale": mpf(real.log2_scale),
        "scale": scale,
        "limit": mpmath.ceil(64 * limit) / 64,
        "k1_hi": k1_hi,
        "k1_lo": k1 * LOG2E - k1_hi,
        "k3_hi": k3_hi,
        "k3_lo": k3 * LOG2E - k3_hi,
        "slope_0": k1,
        "slope_2": 3 * k3,
        "root_hi": root_hi,
        "root_lo": root - root_hi,
        "root_exp": root_exp,
        "root_exp_squared": root_exp**2,
        "twice_one": 2 * one,
        "one_squared": one**2,
        "w0_hi": w0_hi,
        "w0_lo": w0 - w0_hi,
        "w1_hi": w1_hi,
        "w1_lo": w1 - w1_hi,
        **{f"h{k}": x for k, x in enumerate(scaled_h)},
    }
    if real is FLOAT:
        tail_limit = mpmath.findroot(lambda a: v(a) * LOG2E - 32, 8)
        values["tail_limit"] = mpmath.ceil(64 * tail_limit) / 64
    return {name: float(real.rounding(value)) for name, value in values.items()}


class HardResults:
    """The 16-bit results of a gate that lie closest to a tie."""

    def __init__(self, k1: mpf, k3: mpf, fmt: Format, limit: float, ties: str) -> None:
        k1, k3 = (np.longdouble(mpmath.nstr(k, 25)) for k in (k1, k3))
        a = fmt.numbers(2.0**-13, limit).astype(np.longdouble)
        f = 1 / (1 + np.exp(k1 * a + k3 * a**3))
        d = f - a * (k1 + 3 * k3 * a**2) * f * (1 - f)
        exact = np.stack([a - a * f, -a * f, 1 - d, d]).astype(float)
        bounds = fmt.floats(exact[:2], ties), fmt.floats(exact[2:], "even")
        low, high = (np.concatenate(ends) for ends in zip(*bounds, strict=True))
        terms = np.maximum(f, np.abs(d))
        noise = 2.0**-18 * np.stack([a * f, a * f, terms, terms])
        hard = np.minimum(high - exact, exact - low) < noise
        self.a = a.astype(np.float32)[hard.any(axis=0)]
        self.low = np.where(hard, low, -np.inf)[:, hard.any(axis=0)]
        self.high = np.where(hard, high, np.inf)[:, hard.any(axis=0)]

    def misses(self, C: Numbers) -> int:
        """How many results the gate's formulas get wrong."""
        both = self.a, -self.a
        y = np.stack([f(x, C) for f in (family.value, family.derivative) for x in both])
        return int(np.count_nonzero((y < self.low) | (self.high < y)))


def half_constants(name: str, fp32: dict[str, float]) -> dict[str, float]:
    """Constants, a few units in the last place off, that get every 16-bit result right."""
    (k1, k3), start = GATES[name], HALF_UNITS[name]
    coefficients, _ = exp2.fit(DEGREE, minimax.to_float32)
    values = {
        "k1": k1 * LOG2E,
        "k3": k3 * LOG2E,
        "slope_0": k1,
        "slope_2": 3 * k3,
        "one": start.unit * (1 - start.below * mpf(2) ** -24),
        **{f"exp2_{k}": start.unit * c for k, c in enumerate(coefficients)},
    }
    origin = 1.5 * 2.0**23 + fp32["log2_scale"]
    exact = {name: np.float32(float(value)) for name, value in values.items()}
    exact["k1"] += start.k1_ulps * np.spacing(exact["k1"])
    reach = {f"exp2_{k}": 16 for k in range(1, DEGREE + 1)} | {"slope_0": 2, "slope_2": 4}
    hard = [HardResults(k1, k3, fmt, fp32["limit"], start.ties) for fmt in (FP16, BF16)]
    random = np.random.default_rng(seed=0)
    for _ in range(100000):
        c = dict(exact)
        for name, ulps in reach.items():
            nudge = random.integers(-ulps, ulps + 1)
            c[name] += nudge * np.spacing(c[name]) if c[name] else 0
        found = {name: float(value) for name, value in c.items()}
        C = family.half_constants(Numbers(**fp32, origin=origin), Numbers(**found))
        if not any(h.misses(C) for h in hard):
            return found
    raise ArithmeticError("no constants round every 16-bit result correctly")


def share_constants(name: str) -> dict[str, float]:
    """For formulas of s."""
    (k1, k3), share = GATES[name], SHARES[name]
    values = {
        "share": share,
        "share_k1": k1 * LOG2E / share,
        "share_k3": k3 * LOG2E / share**3,
        "share_slope_0": k1,
        "share_slope_2": 3 * k3 / share**2,
    }
    return {name: float(minimax.to_float32(value)) for name, value in values.items()}


def main() -> None:
    parts = []
    for gate in GATES:
        name = f"{gate}Constants"
        wide = {real: constants(gate, real) for real in (FLOAT, DOUBLE)}
        parts += [Constants(name, real.name, wide[real], real.name) for real in wide]
        half = half_constants(gate, wide[FLOAT]) | share_constants(gate)
        parts.append(Constants(name, "fp16", half, "float"))
    write("fit.logistic_of_cubic", parts)


if __name__ == "__main__":
    main()
