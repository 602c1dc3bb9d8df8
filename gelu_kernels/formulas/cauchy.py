"""csrc/gates/cauchy.h in Python; see its comments: x (1/2 + atan(x)/pi)."""

import math

from gelu_kernels.formulas.arithmetic import (
    Real,
    constant,
    fma,
    magnitude,
    magnitude_or_limit,
    negated,
    positive_part,
    reciprocal,
    where,
)
from gelu_kernels.formulas.coefficients import Constants, Polynomial
from gelu_kernels.formulas.coefficients import cauchy as numbers
from gelu_kernels.formulas.polynomial import polynomial


def inverse_square(a: Real, C: Constants) -> Real:
    """1 / (1 + a^2)."""
    r = reciprocal(fma(a, a, 1.0), C)
    return where(a > C.square_limit, constant(0.0, a), r)


def small_argument(a: Real, C: Constants) -> Real:
    """q."""
    return where(a > C.split, reciprocal(a, C), a)


def half_tail(a: Real, near: float, far: float, C: Constants) -> Real:
    """F(-a) or D(a) for 16-bit results; `near` and `far` are 1/pi and 1/pi, or 2/pi and 0."""
    r = reciprocal(fma(a, a, 1.0), C)
    w = a * r
    is_far = a > 1.0
    rho = where(is_far, r, a * w)
    angle = fma(rho, polynomial(rho, C.arcsine), where(is_far, constant(far, a), constant(near, a)))
    half = where(is_far, constant(0.0, a), constant(0.5, a))
    return fma(where(is_far, w, negated(w)), angle, half)


def derivative_tail(a: Real, C: Constants) -> Real:
    """D."""
    q = small_argument(a, C)
    s = q * q
    is_far = a > C.split
    zero = constant(0.0, a)
    near = polynomial(fma(q, q, -C.near_centre), C.near)
    far = polynomial(fma(q, q, -C.far_centre), C.far)
    y = q * where(is_far, far, near)
    relative_error = where(is_far, fma(negated(a), q, 1.0) * 3.0, zero)
    error = fma(relative_error, s, fma(q, q, negated(s)))
    linear = where(is_far, zero, fma(negated(q), C.two_over_pi, 0.5))
    return fma(y, s, fma(y, error, linear))


def tail(a: Real, C: Constants) -> Real:
    """F(-a) for a >= 0."""
    scale = where(a > C.huge, constant(C.huge_scale, a), constant(1.0, a))
    a = magnitude(a * scale, C.limit)
    q = small_argument(a, C)
    is_far = a > C.split
    half = where(is_far, constant(0.0, a), constant(0.5, a))
    f = fma(where(is_far, q, negated(q)), polynomial(q * q, C.arctangent), half)
    return f * scale


def density(a: Real, C: Constants) -> Real:
    return inverse_square(a, C) * C.one_over_pi


def value(x: Real, C: Constants) -> Real:
    a = magnitude(x, C.limit)
    if C.form == "half":
        f = half_tail(a, C.one_over_pi, C.one_over_pi, C)
        return fma(negated(a), f, positive_part(x))
    else:
        q = small_argument(a, C)
        is_far = a > C.split
        p = polynomial(q * q, C.arctangent)
        factor = where(is_far, constant(1.0, a), a)
        return fma(negated(factor), where(is_far, p, fma(negated(q), p, 0.5)), positive_part(x))


def derivative(x: Real, C: Constants) -> Real:
    a = magnitude(x, C.limit)
    d = derivative_tail(a, C) if C.form == "wide" else half_tail(a, C.two_over_pi, 0.0, C)
    return where(x > 0, 1.0 - d, d)


def second_derivative(x: Real, C: Constants) -> Real:
    r = inverse_square(magnitude(x, C.limit), C)
    return r * C.two_over_pi * r


def in_tail(x: Real, u: Real, C: Constants) -> Real:
    a = magnitude_or_limit(x, C.tail_limit)
    denominator = polynomial(a, C.tail_denominator)
    return fma(u, denominator, denominator) < polynomial(a, C.tail_numerator)


def half_constants(fp32: Constants, arcsine: Polynomial) -> Constants:
    """For 16-bit results."""
    return fp32.replace(form="half", limit=fp32.half_limit, arcsine=arcsine)


def _wide(precision: str) -> Constants:
    return Constants(
        form="wide",
        **vars(numbers.CauchyConstants[precision]),
        arctangent=numbers.cauchy_arctangent[precision],
        near=numbers.cauchy_derivative_near[precision],
        far=numbers.cauchy_derivative_far[precision],
    )


_fp32 = _wide("fp32")
_fp16, _bf16 = (half_constants(_fp32, numbers.cauchy_arcsine[name]) for name in ("fp16", "bf16"))

left_limit = -1 / math.pi
ties = "subnormal"
constants = {
    "fp64": _wide("fp64"),
    "fp32": _fp32,
    "fp16": _fp16,
    "bf16": _bf16,
    "fast_bf16": _bf16,
    "exp2_fp16": _fp16,  # this gate has no exponential
    "exp2_bf16": _bf16,
    "random": Constants(
        tail_limit=_fp32.tail_limit,
        tail_numerator=numbers.cauchy_tail_numerator["fp32"],
        tail_denominator=numbers.cauchy_tail_denominator["fp32"],
    ),
}
