"""csrc/gates/logistic_of_cubic.h in Python; see its comments: x sigmoid(v(x)) for an odd
cubic or linear v. With a = |x|, E = exp(-v(a)) and D = gate'(-a)."""

from gelu_kernels.formulas.arithmetic import (
    Real,
    approximate_logistic,
    approximate_quotient,
    constant,
    exp2,
    fma,
    magnitude,
    magnitude_or_limit,
    negated,
    positive_part,
    quotient,
    reciprocal,
    scale_by_power_of_two,
    where,
)
from gelu_kernels.formulas.coefficients import Constants, Polynomial
from gelu_kernels.formulas.coefficients import exp2 as powers
from gelu_kernels.formulas.polynomial import polynomial

# What the module of a gate provides in addition to its constants.
__all__ = [
    "density",
    "derivative",
    "derivative_to_encode",
    "distribution_at",
    "distribution_estimate",
    "in_tail",
    "left_limit",
    "second_derivative",
    "tail",
    "tail_at",
    "ties",
    "value",
]


def exponent(x: Real, y: Real, C: Constants) -> tuple[Real, Real]:
    """x y + log2_scale = n + fraction, as n + an origin and the fraction."""
    shifted = fma(x, y, C.origin)
    return shifted, fma(x, y, C.origin - shifted)


def even(a: Real, c0: float, c2: float, C: Constants) -> Real:
    """c0 + c2 a^2; c2 is 0 if v is linear."""
    if C.k3_hi == 0:
        return constant(c0, a)
    else:
        return fma(a * a, c2, c0)


def polynomial_step(hi: Real, lo: Real, x: Real, c_hi: Real, c_lo: Real) -> tuple[Real, Real]:
    """(hi + lo) x + c_hi + c_lo to about twice the precision."""
    high = fma(hi, x, c_hi)
    return high, fma(hi, x, c_hi - high) + fma(lo, x, c_lo)


def scaled_exponential(a: Real, C: Constants) -> Real:
    """scale E."""
    w_hi = constant(C.k1_hi, a)
    w_lo = constant(C.k1_lo, a)
    if C.k3_hi != 0:
        s = a * a
        w_hi, w_lo = polynomial_step(constant(C.k3_hi, a), constant(C.k3_lo, a), s, w_hi, w_lo)
        w_lo = fma(fma(a, a, negated(s)), C.k3_hi, w_lo)
    shifted, fraction = exponent(negated(a), w_hi, C)
    return scale_by_power_of_two(polynomial(fma(negated(a), w_lo, fraction), C.exp2), shifted)


def half_tail(a: Real, C: Constants) -> Real:
    """F for 16-bit results."""
    if C.form == "exp2":
        e = exp2(fma(negated(a), even(a, C.half.k1, C.half.k3, C), C.log2_scale))
        f = approximate_quotient(e, e + C.scale, C)
    else:
        shifted, fraction = exponent(negated(a), even(a, C.half.k1, C.half.k3, C), C)
        e = scale_by_power_of_two(polynomial(fraction, C.half_exp2), shifted)
        f = e * reciprocal(e + C.scale * C.half.one, C)
    if C.limits_tail:
        f = magnitude(f, 0.5)
    return f


def half_derivative_tail(a: Real, C: Constants) -> Real:
    """D for 16-bit results."""
    f = half_tail(a, C)
    slope = even(a, C.half.slope_0, C.half.slope_2, C)
    return fma(negated(a) * slope, fma(negated(f), f, f), f)


def derivative_tail(a: Real, C: Constants) -> Real:
    """D."""
    difference = C.root_hi - a
    minus_a = difference - C.root_hi
    error = (C.root_hi - (difference - minus_a)) - (a + minus_a)
    distance_lo = error + C.root_lo
    w_hi = constant(C.w0_hi, a)
    w_lo = constant(C.w0_lo, a)
    slope = constant(C.h0, a)
    if C.k3_hi != 0:
        one_hi, one_lo = polynomial_step(
            constant(C.k3_hi, a),
            constant(C.k3_lo, a),
            a,
            constant(C.w1_hi, a),
            constant(C.w1_lo, a),
        )
        w_hi, w_lo = polynomial_step(one_hi, one_lo, a, w_hi, w_lo)
        slope = polynomial(difference, C.h)
    shifted, fraction = exponent(difference, w_hi, C)
    f = fma(distance_lo, w_hi, fma(difference, w_lo, fraction))
    p = f * polynomial(f, C.exp2m1)
    power = scale_by_power_of_two(constant(1.0, a), shifted)
    e_power = scale_by_power_of_two(constant(C.root_exp, a), shifted)
    h_power = scale_by_power_of_two(constant(C.root_exp_squared, a), shifted)
    e = fma(e_power, p, e_power)
    growth = fma(h_power, p, h_power - C.scale * C.root_exp_squared)
    h = power * fma(difference, slope, fma(distance_lo, slope, growth))
    return quotient(fma(h, p, h), fma(e, e + C.twice_one, C.one_squared), C)


def value(x: Real, C: Constants) -> Real:
    a = magnitude(x, C.limit)
    if C.form == "wide":
        e = scaled_exponential(a, C)
        return positive_part(x) - quotient(a * e, e + C.scale, C)
    else:
        return fma(negated(a), half_tail(a, C), positive_part(x))


def derivative(x: Real, C: Constants) -> Real:
    a = magnitude(x, C.limit)
    tail = derivative_tail(a, C) if C.form == "wide" else half_derivative_tail(a, C)
    return where(x > 0, 1.0 - tail, tail)


def derivative_to_encode(x: Real, C: Constants) -> Real:
    if C.form != "wide":
        return derivative(x, C)
    else:
        a = magnitude(x, C.limit)
        e = scaled_exponential(a, C)
        f = e * reciprocal(e + C.scale, C)
        slope = even(a, C.slope_0, C.slope_2, C)
        tail = fma(negated(a) * slope, fma(negated(f), f, f), f)
        return where(x > 0, 1.0 - tail, tail)


def second_derivative(x: Real, C: Constants) -> Real:
    a = magnitude(x, C.limit)
    e = scaled_exponential(a, C)
    slope = even(a, C.slope_0, C.slope_2, C)
    one = e + C.scale
    bracket = even(a, 2 * C.slope_0, 4 * C.slope_2, C) * one - a * slope * slope * (C.scale - e)
    return quotient(e * bracket, one * one * fma(e, 1 / C.scale, 1.0), C)


def until_underflow(a: Real, C: Constants) -> Real:
    return magnitude(a, C.limit + 0.0625)


def scaled_tail(a: Real, C: Constants) -> Real:
    e = scaled_exponential(a, C)
    return quotient(e, fma(e, 1 / C.scale, 1.0), C)


def tail(a: Real, C: Constants) -> Real:
    a = until_underflow(a, C)
    return fma(a, 0.0, scaled_tail(a, C) * (1 / C.scale))


def density(a: Real, C: Constants) -> Real:
    a = until_underflow(a, C)
    f = scaled_tail(a, C)
    slope = even(a, C.slope_0, C.slope_2, C)
    y = slope * fma(f * (-1 / C.scale), f, f)
    return fma(a, 0.0, y * (1 / C.scale))


def exponent_at(s: Real, C: Constants) -> tuple[Real, Real]:
    u = even(s, C.half.share_k1, C.half.share_k3, C)
    origin = 1.5 * 2.0**23 + 64
    shifted = fma(negated(s), u, origin)
    return shifted, fma(negated(s), u, origin - shifted)


def tail_of(power: Real, shifted: Real, C: Constants) -> Real:
    e = scale_by_power_of_two(power, shifted)
    return e * reciprocal(e + 2.0**64, C)


def tail_at(s: Real, C: Constants) -> Real:
    shifted, fraction = exponent_at(s, C)
    return tail_of(polynomial(fraction, C.tail_exp2), shifted, C)


def distribution_at(s: Real, C: Constants) -> tuple[Real, Real]:
    shifted, fraction = exponent_at(s, C)
    f = tail_of(polynomial(fraction, C.share_exp2), shifted, C)
    slope = even(s, C.half.share_slope_0, C.half.share_slope_2, C)
    return f, fma(negated(f), f, f) * slope


def in_tail(x: Real, u: Real, C: Constants) -> Real:
    a = magnitude_or_limit(x, C.tail_limit)
    shifted, fraction = exponent(a, even(a, C.half.k1, C.half.k3, C), C)
    inverse = scale_by_power_of_two(polynomial(fraction, C.exp2), shifted)
    return fma(u, inverse, inverse) < 2.0**32 - u


def distribution_estimate(x: Real, C: Constants) -> Real:
    return approximate_logistic(x * even(x, -C.half.k1, -C.half.k3, C), C)


left_limit = -0.0
ties = "none"


def half_constants(fp32: Constants, half: Constants) -> Constants:
    """For 16-bit results."""
    exp2 = Polynomial(0.0, tuple(vars(half)[f"exp2_{k}"] for k in range(6)))
    limits_tail = half.exp2_0 - half.one > 2**-24
    return fp32.replace(form="half", half=half, half_exp2=exp2, limits_tail=limits_tail)


def constants_of(numbers: dict[str, Constants]) -> dict[str, Constants]:
    """The ``constants`` of a gate, given its coefficients."""
    fp64, fp32 = (
        Constants(
            form="wide",
            **vars(numbers[precision]),
            origin=1.5 * 2.0**mantissa_bits + numbers[precision].log2_scale,
            exp2=exp2[precision],
            exp2m1=powers.exp2m1_polynomial[precision],
            h=Polynomial(0.0, tuple(vars(numbers[precision])[f"h{k}"] for k in range(3))),
        )
        for precision, mantissa_bits, exp2 in (
            ("fp64", 52, powers.exp2_polynomial),
            ("fp32", 23, powers.exp2_polynomial_6),
        )
    )
    half = numbers["fp16"]
    for_half = half_constants(fp32, half).replace(
        share=half.share,
        tail_share=half.share,
        tail_exp2=powers.exp2_polynomial_5["fp32"],
        share_exp2=powers.exp2_polynomial_5["fp32"],
    )
    by_exp2 = for_half.replace(form="exp2")
    one = 2**24 * (1 - 2**-19 if for_half.limits_tail else 1 + 2**-20)
    by_unit = by_exp2.replace(scale=one, log2_scale=24.0)
    # exp2 rounds differently: without this 8 values of normal_tanh are misrounded instead of 6.
    short = 2**-24 if half.k3 != 0 else 0
    unscaled = by_exp2.replace(scale=half.one / half.exp2_0 - short, log2_scale=0.0)
    random = Constants(
        half=half,
        k3_hi=fp32.k3_hi,
        tail_limit=fp32.tail_limit,
        origin=1.5 * 2.0**23,
        exp2=powers.exp2_polynomial_4["fp32"],
        estimate_error=2.0**-18,
    )
    return {
        "fp64": fp64,
        "fp32": fp32,
        "fp16": for_half,
        "bf16": for_half.replace(tail_exp2=powers.exp2_polynomial_4["fp32"]),
        # sigmoid(1.702 x) has one hard case, x = -0.1235, which the errors would misround.
        "fast_bf16": by_unit if for_half.limits_tail or half.k3 != 0 else for_half,
        "exp2_fp16": unscaled,
        "exp2_bf16": unscaled,
        "random": random,
    }
