"""csrc/gates/sigmoid.h in Inductor, and its comments hold here: x sigmoid(v(x)) for an odd cubic or
linear v. With a = |x|, E = exp(-v(a)) and D = gate'(-a)."""

from gelu_kernels.compile.arithmetic import (
    Real,
    exp2,
    fma,
    magnitude,
    polynomial,
    positive_part,
    scale_by_power_of_two,
    where_positive,
)
from gelu_kernels.triton_kernels.coefficients import Constants


def exponent(x: Real, y: Real, C: Constants) -> tuple[Real, Real]:
    """x y + log2_scale = n + fraction, as n + an origin and the fraction."""
    shifted = fma(x, y, C.origin)
    return shifted, fma(x, y, C.origin - shifted)


def even(a: Real, c0: float, c2: float, C: Constants) -> Real:
    """c0 + c2 a^2; c2 is 0 if v is linear."""
    return a.constant(c0) if C.k3_hi == 0 else fma(a * a, c2, c0)


def horner_step(
    hi: Real, lo: Real, x: Real, c_hi: Real | float, c_lo: Real | float
) -> tuple[Real, Real]:
    """(hi + lo) x + c_hi + c_lo to about twice the precision."""
    high = fma(hi, x, c_hi)
    return high, fma(hi, x, c_hi - high) + fma(lo, x, c_lo)


def scaled_e(a: Real, C: Constants) -> Real:
    """scale E."""
    w_hi, w_lo = a.constant(C.k1_hi), a.constant(C.k1_lo)
    if C.k3_hi != 0:
        s = a * a
        w_hi, w_lo = horner_step(a.constant(C.k3_hi), a.constant(C.k3_lo), s, w_hi, w_lo)
        w_lo = fma(fma(a, a, -s), C.k3_hi, w_lo)
    shifted, fraction = exponent(-a, w_hi, C)
    return scale_by_power_of_two(polynomial(fma(-a, w_lo, fraction), C.exp2), shifted)


def derivative_tail(a: Real, C: Constants) -> Real:
    """D."""
    difference = C.root_hi - a
    minus_a = difference - C.root_hi
    error = (C.root_hi - (difference - minus_a)) - (a + minus_a)
    distance_lo = error + C.root_lo
    w_hi, w_lo, slope = a.constant(C.w0_hi), a.constant(C.w0_lo), a.constant(C.h0)
    if C.k3_hi != 0:
        one = horner_step(a.constant(C.k3_hi), a.constant(C.k3_lo), a, C.w1_hi, C.w1_lo)
        w_hi, w_lo = horner_step(*one, a, w_hi, w_lo)
        slope = polynomial(difference, C.h)
    shifted, fraction = exponent(difference, w_hi, C)
    f = fma(distance_lo, w_hi, fma(difference, w_lo, fraction))
    p = f * polynomial(f, C.exp2m1)
    power = scale_by_power_of_two(1.0, shifted)
    e_power = scale_by_power_of_two(C.root_exp, shifted)
    h_power = scale_by_power_of_two(C.root_exp_squared, shifted)
    e = fma(e_power, p, e_power)
    growth = fma(h_power, p, h_power - C.scale * C.root_exp_squared)
    h = power * fma(difference, slope, fma(distance_lo, slope, growth))
    return fma(h, p, h) / fma(e, e + C.twice_one, C.one_squared)


def value(x: Real, C: Constants) -> Real:
    a = magnitude(x, C.limit)
    e = scaled_e(a, C)
    return positive_part(x) - (a * e) / (e + C.scale)


def derivative(x: Real, C: Constants) -> Real:
    tail = derivative_tail(magnitude(x, C.limit), C)
    return where_positive(x, 1.0 - tail, tail)


def second_derivative(x: Real, C: Constants) -> Real:
    a = magnitude(x, C.limit)
    e = scaled_e(a, C)
    slope = even(a, C.slope_0, C.slope_2, C)
    sum = e + C.scale
    bracket = even(a, 2 * C.slope_0, 4 * C.slope_2, C) * sum - a * slope * slope * (C.scale - e)
    return (e * bracket) / (sum * sum * fma(e, 1 / C.scale, 1.0))


def half_tail(a: Real, C: Constants) -> Real:
    """F for 16 bits."""
    e = exp2(-a * even(a, C.half.k1, C.half.k3, C))
    return e / (e + C.half.one)


def half_value(x: Real, C: Constants) -> Real:
    a = magnitude(x, C.limit)
    return fma(-a, half_tail(a, C), positive_part(x))


def half_derivative(x: Real, C: Constants) -> Real:
    a = magnitude(x, C.limit)
    f = half_tail(a, C)
    slope = even(a, C.half.slope_0, C.half.slope_2, C)
    tail = fma(-a * slope, fma(-f, f, f), f)
    return where_positive(x, 1.0 - tail, tail)
