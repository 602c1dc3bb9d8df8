"""csrc/gates/cauchy.h in Python; see its comments: x (1/2 + atan(x)/pi)."""

import math

from gelu_kernels.formulas.arithmetic import (
    Real,
    approximate_reciprocal,
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


def half_rho(a: Real, r: Real) -> Real:
    """rho; r is 1 / (1 + a^2)."""
    return where(a > 1.0, r, a * (a * r))


def half_tail(a: Real, r: Real, t: Real, near: float, far: float) -> Real:
    """F(-a) or D(a) for 16-bit results; `near` and `far` are 1/pi and 1/pi, or 2/pi and 0, and t is
    T(rho)."""
    w = a * r
    is_far = a > 1.0
    angle = fma(half_rho(a, r), t, where(is_far, constant(far, a), constant(near, a)))
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


def arctangent_tail(is_far: Real, q: Real, p: Real) -> Real:
    half = where(is_far, constant(0.0, q), constant(0.5, q))
    return fma(where(is_far, q, negated(q)), p, half)


def tail(a: Real, C: Constants) -> Real:
    """F(-a) for a >= 0."""
    scale = where(a > C.huge, constant(C.huge_scale, a), constant(1.0, a))
    a = magnitude(a * scale, C.limit)
    q = small_argument(a, C)
    return arctangent_tail(a > C.split, q, polynomial(q * q, C.arctangent)) * scale


def half_inverse(a: Real, C: Constants) -> Real:
    if C.has_huge:
        return (reciprocal(magnitude(a * 2.0**-20, 2.0**126), C) - 2.0**-126) * 2.0**-20
    else:
        return reciprocal(magnitude(a, 2.0**125), C)


def tail_at(a: Real, C: Constants) -> Real:
    is_far = a > 1.0
    q = where(is_far, half_inverse(a, C), a)
    return arctangent_tail(is_far, q, polynomial(q * q, C.half_arctangent))


def distribution_at(a: Real, C: Constants) -> tuple[Real, Real]:
    r = reciprocal(fma(a, a, 1.0), C) - 2.0**-124
    t = polynomial(half_rho(a, r), C.share_arcsine)
    return half_tail(a, r, t, C.one_over_pi, C.one_over_pi), r * C.one_over_pi


def density(a: Real, C: Constants) -> Real:
    return inverse_square(a, C) * C.one_over_pi


def value(x: Real, C: Constants) -> Real:
    a = magnitude(x, C.limit)
    if C.form == "half":
        r = reciprocal(fma(a, a, 1.0), C)
        t = polynomial(half_rho(a, r), C.arcsine)
        f = half_tail(a, r, t, C.one_over_pi, C.one_over_pi)
        return fma(negated(a), f, positive_part(x))
    else:
        q = small_argument(a, C)
        is_far = a > C.split
        p = polynomial(q * q, C.arctangent)
        factor = where(is_far, constant(1.0, a), a)
        return fma(negated(factor), where(is_far, p, fma(negated(q), p, 0.5)), positive_part(x))


def derivative(x: Real, C: Constants) -> Real:
    a = magnitude(x, C.limit)
    if C.form == "wide":
        d = derivative_tail(a, C)
    else:
        r = reciprocal(fma(a, a, 1.0), C)
        d = half_tail(a, r, polynomial(half_rho(a, r), C.arcsine), C.two_over_pi, 0.0)
    return where(x > 0, 1.0 - d, d)


def derivative_to_encode(x: Real, C: Constants) -> Real:
    return derivative(x, C)


def second_derivative(x: Real, C: Constants) -> Real:
    r = inverse_square(magnitude(x, C.limit), C)
    return r * C.two_over_pi * r


def in_tail(x: Real, u: Real, C: Constants) -> Real:
    a = magnitude_or_limit(x, C.tail_limit)
    denominator = polynomial(a, C.tail_denominator)
    return fma(u, denominator, denominator) < polynomial(a, C.tail_numerator)


def distribution_estimate(x: Real, C: Constants) -> Real:
    a = magnitude(x, 2.0**32)  # whose third power is finite
    inverse = approximate_reciprocal(polynomial(a, C.estimate_denominator), C)
    tail = polynomial(a, C.estimate_numerator) * inverse
    return where(x > 0, 1.0 - tail, tail)


def half_constants(fp32: Constants, arcsine: Polynomial, has_huge: bool = False) -> Constants:
    """For 16-bit results. Only a bfloat16 can be so huge that its inverse is subnormal."""
    return fp32.replace(
        form="half",
        limit=fp32.half_limit,
        arcsine=arcsine,
        share=0,
        tail_share=0,
        distribution_limit=2.0**62,
        has_huge=has_huge,
        half_arctangent=numbers.cauchy_half_arctangent["fp32"],
        share_arcsine=numbers.cauchy_arcsine["fp16"],
    )


def _wide(precision: str) -> Constants:
    return Constants(
        form="wide",
        **vars(numbers.CauchyConstants[precision]),
        arctangent=numbers.cauchy_arctangent[precision],
        near=numbers.cauchy_derivative_near[precision],
        far=numbers.cauchy_derivative_far[precision],
    )


_fp32 = _wide("fp32")
_fp16, _bf16 = (
    half_constants(_fp32, numbers.cauchy_arcsine[name], has_huge=name == "bf16")
    for name in ("fp16", "bf16")
)

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
        estimate_numerator=numbers.cauchy_estimate_numerator["fp32"],
        estimate_denominator=numbers.cauchy_estimate_denominator["fp32"],
        estimate_error=1.25 * 2.0**-15,
    ),
}
