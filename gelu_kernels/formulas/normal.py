"""csrc/gates/normal.h in Python; see its comments: the gate of the GELU, x Phi(x)."""

import math

from gelu_kernels.formulas.arithmetic import (
    Real,
    approximate_logistic,
    at_most,
    constant,
    exp2,
    fma,
    magnitude,
    magnitude_or_limit,
    negated,
    positive_part,
    power_of_two,
    quotient,
    reciprocal,
    scale_by_power_of_two,
    where,
)
from gelu_kernels.formulas.coefficients import Constants, Polynomial
from gelu_kernels.formulas.coefficients import exp2 as powers
from gelu_kernels.formulas.coefficients import normal as numbers
from gelu_kernels.formulas.polynomial import polynomial


def exponent(h: Real, a: Real, offset: float) -> tuple[Real, Real]:
    """h a + offset, as a sum with its integer in the low bits, and its fraction."""
    origin = 1.5 * 2.0**23 + offset
    shifted = fma(h, a, origin)
    return shifted, fma(h, a, origin - shifted)


def scaled_gaussian(y: Real, a: Real, C: Constants) -> Real:
    """y 2^(-k a^2) / unscale."""
    s = a * a
    s_low = fma(a, a, negated(s))
    shifted = fma(s, -C.half_log2e, C.origin)
    f = fma(s_low, -C.half_log2e, fma(s, -C.half_log2e, C.origin - shifted))
    scaled = y * power_of_two(shifted)
    return fma(scaled, f * polynomial(f, C.exp2m1), scaled)


def value_power(a: Real, C: Constants) -> Real:
    """Phi(-a) / unscale for 16-bit results."""
    shifted, fraction = exponent(polynomial(a, C.log2_cdf), a, C.log2_scale - 1)
    return scale_by_power_of_two(polynomial(fraction, C.value_exp2), shifted)


def value(x: Real, C: Constants) -> Real:
    if C.form == "exp2":
        a = magnitude(x, C.value_limit)
        power = exp2(fma(polynomial(a, C.log2_cdf), a, C.log2_half))
        return fma(a * -C.unscale, power, positive_part(x))
    elif C.form == "half":
        a = magnitude(x, C.value_limit)
        power = value_power(a, C)
        if C.one > 1:
            power = magnitude(power, 0.5 - 2.0**-24)
        return fma(a * -C.unscale, power, positive_part(x))
    else:
        a = magnitude(x, C.limit)
        z = fma(negated(a), quotient(a, a + C.value_pole, C), a)
        tail = z * scaled_gaussian(polynomial(z, C.value_factor), a, C)
        return fma(tail, -C.unscale, positive_part(x))


def derivative(x: Real, C: Constants) -> Real:
    if C.form == "exp2":
        a = magnitude(x, C.derivative_limit)
        distance = fma(a, -C.slope * C.unscale, 0.5 * C.unscale)
        d = distance * exp2(fma(polynomial(a, C.log2_derivative), a, C.log2_scale))
        return where(x > 0, 1.0 - d, d)
    elif C.form == "half":
        a = magnitude(x, C.derivative_limit)
        distance = fma(a, -C.slope * C.unscale, 0.5 * C.unscale)
        shifted, fraction = exponent(polynomial(a, C.log2_derivative), a, C.log2_scale + 127)
        power = power_of_two(shifted) * polynomial(fraction, C.exp2)
        return where(x > 0, fma(negated(distance), power, 1.0), distance * power)
    else:
        a = magnitude(x, C.limit)
        distance = fma(a, -C.unscale, C.root_hi * C.unscale) + C.root_lo * C.unscale
        factor = polynomial(quotient(a, a + C.derivative_pole, C), C.derivative_factor)
        d = scaled_gaussian(factor, a, C)
        return where(x > 0, fma(negated(distance), d, 1.0), distance * d)


def derivative_to_encode(x: Real, C: Constants) -> Real:
    if C.form == "half":
        a = magnitude(x, C.value_limit)
        d = value_power(a, C) * polynomial(a, C.derivative_ratio)
    else:
        a = magnitude(x, C.limit)
        part = quotient(a, a + C.value_pole, C)
        tail = polynomial(fma(negated(a), part, a), C.value_factor) * fma(
            part, -C.unscale, C.unscale
        )
        d = scaled_gaussian(fma(a, -C.density * C.unscale, tail), a, C)
    return where(x > 0, 1.0 - d, d)


def second_derivative(x: Real, C: Constants) -> Real:
    a = magnitude(x, C.limit)
    factor = polynomial(a * a, C.density_factor) * fma(negated(a), a, 2.0)
    return scaled_gaussian(factor, a, C) * C.unscale


def tail(a: Real, C: Constants) -> Real:
    a = magnitude(a, C.limit)
    rest = quotient(constant(C.value_pole, a), a + C.value_pole, C)
    z = a * rest
    return scaled_gaussian(polynomial(z, C.value_factor) * rest, a, C) * C.unscale


def density(a: Real, C: Constants) -> Real:
    a = magnitude(a, C.limit)
    return scaled_gaussian(polynomial(a * a, C.density_factor), a, C) * C.unscale


def tail_at(s: Real, C: Constants) -> Real:
    shifted, fraction = exponent(polynomial(s, C.tail_log2), s, C.tail_log2_scale - 1)
    power = scale_by_power_of_two(polynomial(fraction, C.exp2), shifted)
    if C.tail_log2_scale != 0:
        power = power * 2.0**-C.tail_log2_scale
    return power


def distribution_at(s: Real, C: Constants) -> tuple[Real, Real]:
    shifted, fraction = exponent(s * s, constant(C.density_log2, s), 64.0)
    power = scale_by_power_of_two(polynomial(fraction, C.density_exp2), shifted)
    density = power * 2.0**-64
    return density * polynomial(reciprocal(s + C.ratio_pole, C), C.ratio), density


def in_tail(x: Real, u: Real, C: Constants) -> Real:
    root = polynomial(magnitude_or_limit(x, C.tail_limit), C.tail_root)
    power_2 = root * root
    power_4 = power_2 * power_2
    power_8 = power_4 * power_4
    return u < fma(power_8, power_8, -1.0)


def distribution_estimate(x: Real, C: Constants) -> Real:
    return approximate_logistic(x * polynomial(at_most(x * x, 16.0), C.logit), C)


def _wide(precision: str) -> Constants:
    return Constants(
        form="wide",
        **vars(numbers.NormalConstants[precision]),
        value_factor=numbers.normal_value_factor[precision],
        derivative_factor=numbers.normal_derivative_factor[precision],
        density_factor=numbers.normal_density_factor[precision],
        exp2m1=powers.exp2m1_polynomial[precision],
    )


def _half(
    precision: str, exp2: dict[str, Polynomial], tail_share: float, tail_log2_scale: int
) -> Constants:
    fp32 = numbers.NormalConstants["fp32"]
    return Constants(
        form="half",
        share=fp32.share,
        tail_share=tail_share,
        tail_log2=numbers.normal_tail_log2[precision],
        tail_log2_scale=tail_log2_scale,
        density_log2=-fp32.half_log2e / fp32.share**2,
        density_exp2=numbers.normal_density_exp2["fp32"],
        ratio_pole=fp32.ratio_pole,
        ratio=numbers.normal_ratio["fp32"],
        **vars(numbers.NormalConstants[precision]),
        log2_cdf=numbers.normal_log2_cdf[precision],
        log2_derivative=numbers.normal_log2_derivative[precision],
        derivative_ratio=numbers.normal_derivative_ratio[precision],
        value_exp2=numbers.normal_value_exp2[precision],
        exp2=exp2["fp32"],
    )


_fp16 = _half("fp16", powers.exp2_polynomial_5, 1 / 8, 0)
_bf16 = _half("bf16", powers.exp2_polynomial_4, 1 / 16, 66)

left_limit = -0.0
ties = "none"
constants = {
    "fp64": _wide("fp64"),
    "fp32": _wide("fp32"),
    "fp16": _fp16,
    "bf16": _bf16,
    "fast_bf16": _bf16.replace(form="exp2", log2_half=_bf16.log2_scale - 1 - 2**-19),
    "exp2_fp16": _fp16.replace(form="exp2", log2_half=math.log2(_fp16.one / 2), unscale=1.0),
    "exp2_bf16": _bf16.replace(
        form="exp2",
        log2_half=-1.0,
        log2_scale=0.0,
        unscale=1.0,
        value_limit=16.0,  # where the power, and its product with any number, is 0
        derivative_limit=16.0,
    ),
    "random": Constants(
        tail_limit=numbers.NormalConstants["fp32"].tail_limit,
        tail_root=numbers.normal_tail_root["fp32"],
        logit=numbers.normal_logit["fp32"],
        estimate_error=1.375 * 2.0**-16,
    ),
}
