"""csrc/gates/sigmoid.h in Triton, and its comments hold here: x sigmoid(v(x)) for an odd cubic or
linear v. With a = |x|, E = exp(-v(a)) and D = gate'(-a)."""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.arithmetic import (
    constant,
    fma,
    magnitude,
    magnitude_or_limit,
    negated,
    polynomial,
    positive_part,
    quotient,
    refined_reciprocal,
    scale_by_power_of_two,
)


@triton.jit
def exponent(x, y, C: tl.constexpr):
    """x y + log2_scale = n + fraction, as n + an origin and the fraction."""
    shifted = fma(x, y, C.origin)
    return shifted, fma(x, y, C.origin - shifted)


@triton.jit
def even(a, c0: tl.constexpr, c2: tl.constexpr, C: tl.constexpr):
    """c0 + c2 a^2; c2 is 0 if v is linear."""
    if C.k3_hi == 0:
        return constant(c0, a)
    else:
        return fma(a * a, c2, c0)


@triton.jit
def horner_step(hi, lo, x, c_hi, c_lo):
    """(hi + lo) x + c_hi + c_lo to about twice the precision."""
    high = fma(hi, x, c_hi)
    return high, fma(hi, x, c_hi - high) + fma(lo, x, c_lo)


@triton.jit
def scaled_e(a, C: tl.constexpr):
    """scale E."""
    w_hi = constant(C.k1_hi, a)
    w_lo = constant(C.k1_lo, a)
    if C.k3_hi != 0:
        s = a * a
        w_hi, w_lo = horner_step(constant(C.k3_hi, a), constant(C.k3_lo, a), s, w_hi, w_lo)
        w_lo = fma(fma(a, a, negated(s)), C.k3_hi, w_lo)
    shifted, fraction = exponent(negated(a), w_hi, C)
    return scale_by_power_of_two(polynomial(fma(negated(a), w_lo, fraction), C.exp2), shifted)


@triton.jit
def approximate_tail(a, C: tl.constexpr):
    """F, by exp2 of the special function unit."""
    e = tl.exp2(fma(negated(a), even(a, C.half.k1, C.half.k3, C), C.log2_scale))
    return e * refined_reciprocal(e + C.scale, C)


@triton.jit
def half_tail(a, C: tl.constexpr):
    """F for 16-bit results."""
    shifted, fraction = exponent(negated(a), even(a, C.half.k1, C.half.k3, C), C)
    e = scale_by_power_of_two(polynomial(fraction, C.half.exp2), shifted)
    return quotient(e, e + C.scale * C.half.one, C)


@triton.jit
def half_derivative_tail(a, C: tl.constexpr):
    """D for 16-bit results."""
    f = half_tail(a, C)
    slope = even(a, C.half.slope_0, C.half.slope_2, C)
    return fma(negated(a) * slope, fma(negated(f), f, f), f)


@triton.jit
def derivative_tail(a, C: tl.constexpr):
    """D."""
    difference = C.root_hi - a
    minus_a = difference - C.root_hi
    error = (C.root_hi - (difference - minus_a)) - (a + minus_a)
    distance_lo = error + C.root_lo
    w_hi = constant(C.w0_hi, a)
    w_lo = constant(C.w0_lo, a)
    slope = constant(C.h0, a)
    if C.k3_hi != 0:
        one_hi, one_lo = horner_step(
            constant(C.k3_hi, a),
            constant(C.k3_lo, a),
            a,
            constant(C.w1_hi, a),
            constant(C.w1_lo, a),
        )
        w_hi, w_lo = horner_step(one_hi, one_lo, a, w_hi, w_lo)
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


@triton.jit
def value(x, C: tl.constexpr):
    a = magnitude(x, C.limit)
    if C.precision == "fast_bf16" and C.k3_hi != 0:
        return fma(negated(a), approximate_tail(a, C), positive_part(x))
    elif C.is_half:
        return fma(negated(a), half_tail(a, C), positive_part(x))
    else:
        e = scaled_e(a, C)
        return positive_part(x) - quotient(a * e, e + C.scale, C)


@triton.jit
def derivative(x, C: tl.constexpr):
    a = magnitude(x, C.limit)
    if C.is_half:
        tail = half_derivative_tail(a, C)
    else:
        tail = derivative_tail(a, C)
    return tl.where(x > 0, 1.0 - tail, tail)


@triton.jit
def second_derivative(x, C: tl.constexpr):
    a = magnitude(x, C.limit)
    e = scaled_e(a, C)
    slope = even(a, C.slope_0, C.slope_2, C)
    sum = e + C.scale
    bracket = even(a, 2 * C.slope_0, 4 * C.slope_2, C) * sum - a * slope * slope * (C.scale - e)
    return quotient(e * bracket, sum * sum * fma(e, 1 / C.scale, 1.0), C)


@triton.jit
def in_tail(x, u, C: tl.constexpr):
    """Whether u < (2^32 + 1) F(-|x|) - 1."""
    a = magnitude_or_limit(x, C.tail_limit)
    shifted, fraction = exponent(a, even(a, C.half.k1, C.half.k3, C), C)
    inverse = scale_by_power_of_two(polynomial(fraction, C.exp2), shifted)
    return fma(u, inverse, inverse) < 2.0**32 - u
