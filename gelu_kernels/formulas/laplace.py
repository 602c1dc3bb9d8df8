"""csrc/gates/laplace.h in Python; see its comments: the LaLU, x F(x) with the Laplace
distribution, F(x) = e^x/2 for x < 0 and 1 - e^-x/2 for x > 0."""

from gelu_kernels.formulas import logistic
from gelu_kernels.formulas.arithmetic import (
    Real,
    absolute,
    approximate_exp2,
    exp2,
    fma,
    magnitude,
    magnitude_or_limit,
    negated,
    positive_part,
    power_of_two,
    scale_by_power_of_two,
    where,
)
from gelu_kernels.formulas.coefficients import Constants
from gelu_kernels.formulas.coefficients import exp2 as powers
from gelu_kernels.formulas.logistic_of_cubic import scaled_exponential
from gelu_kernels.formulas.polynomial import polynomial


def shrunk(x: Real, a: Real, C: Constants) -> Real:
    if C.shrink != 1:
        a = where(x > 0, a * C.shrink, a)
    return a


def half_tail(a: Real, C: Constants) -> tuple[Real, Real]:
    """F(-a) / unscale, as 2^n and 2^f - 1."""
    shifted = fma(a, -C.log2e, C.origin)
    f = fma(a, -C.log2e, C.origin - shifted)
    return power_of_two(shifted), f * polynomial(f, C.exp2m1)


def value(x: Real, C: Constants) -> Real:
    a = magnitude(x, C.limit)
    if C.form == "exp2":
        power = exp2(fma(shrunk(x, a, C), -C.log2e, C.log2_scale - 1))
        return fma(a * -C.unscale, power, positive_part(x))
    elif C.form == "half":
        integral, fractional = half_tail(shrunk(x, a, C), C)
        scaled = a * -C.unscale
        y = fma(scaled, integral, positive_part(x))
        return fma(scaled * integral, fractional + C.nudge, y)
    else:
        return fma(a * scaled_exponential(a, C), -C.unscale, positive_part(x))


def derivative(x: Real, C: Constants) -> Real:
    a = magnitude(x, C.limit)
    if C.form == "exp2":
        d = fma(a, -C.unscale, C.unscale) * exp2(fma(a, -C.log2e, C.log2_scale - 1))
        return where(x > 0, 1.0 - d, d)
    elif C.form == "half":
        integral, fractional = half_tail(shrunk(x, a, C), C)
        distance = fma(a, -C.unscale, C.unscale)
        scaled = distance * integral
        y = fma(negated(distance), integral, 1.0)
        return where(
            x > 0,
            fma(negated(scaled), fractional + C.nudge, y),
            fma(scaled, fractional - C.nudge, scaled),
        )
    else:
        d = (1.0 - a) * scaled_exponential(a, C)
        return where(x > 0, fma(d, -C.unscale, 1.0), d * C.unscale)


def derivative_to_encode(x: Real, C: Constants) -> Real:
    return derivative(x, C)


def second_derivative(x: Real, C: Constants) -> Real:
    a = magnitude(x, C.limit)
    return fma(a, -0.5, 1.0) * scaled_exponential(a, C) * (2 * C.unscale)


def tail(a: Real, C: Constants) -> Real:
    a = magnitude(a, C.limit)
    return fma(a, 0.0, scaled_exponential(a, C) * C.unscale)


def density(a: Real, C: Constants) -> Real:
    return tail(a, C)


def tail_at(s: Real, C: Constants) -> Real:
    origin = 1.5 * 2.0**23 + 64 - 1
    shifted = fma(s, -C.log2e / C.share, origin)
    fraction = fma(s, -C.log2e / C.share, origin - shifted)
    return scale_by_power_of_two(polynomial(fraction, C.share_exp2), shifted) * 2.0**-64


def distribution_at(s: Real, C: Constants) -> tuple[Real, Real]:
    f = tail_at(s, C)
    return f, f


def in_tail(x: Real, u: Real, C: Constants) -> Real:
    a = magnitude_or_limit(x, C.tail_limit)
    shifted = fma(a, -C.log2e, C.origin)
    f = fma(a, -C.log2e, C.origin - shifted)
    return u < scale_by_power_of_two(polynomial(f, C.exp2), shifted) - 1.0


def distribution_estimate(x: Real, C: Constants) -> Real:
    tail = approximate_exp2(fma(absolute(x), -C.log2e, -1.0), C)
    return where(x > 0, 1.0 - tail, tail)


def _wide(precision: str) -> Constants:
    wide = logistic.constants[precision]
    return wide.replace(unscale=0.5 / wide.scale)


LOG2E = float.fromhex("0x1.715476p0")
_half = Constants(
    form="half",
    limit=98.25,
    unscale=2.0**-16,
    origin=1.5 * 2.0**23 + 127 + 16 - 1,
    log2e=LOG2E,
    nudge=1.3125 * 2.0**-26,
    shrink=1.0,
    exp2m1=powers.exp2m1_polynomial_5["fp32"],
    share=2.0**-7,
    tail_share=2.0**-7,
    share_exp2=powers.exp2_polynomial_5["fp32"],
)
_bf16 = _half.replace(shrink=1 - 2.0**-18)

left_limit = -0.0
ties = "any"
constants = {
    "fp64": _wide("fp64"),
    "fp32": _wide("fp32"),
    "fp16": _half,
    "bf16": _bf16,
    "fast_bf16": _bf16.replace(form="exp2", log2_scale=16 - 2**-20),
    "exp2_fp16": _half.replace(form="exp2", log2_scale=0.0, unscale=1.0),
    # F(-110) is 0, and so is its product with any number.
    "exp2_bf16": _bf16.replace(form="exp2", log2_scale=0.0, unscale=1.0, limit=110.0),
    "random": Constants(
        tail_limit=21.5,
        origin=1.5 * 2.0**23 + 31,
        log2e=LOG2E,
        exp2=powers.exp2_polynomial_4["fp32"],
        estimate_error=2.0**-18,
    ),
}
