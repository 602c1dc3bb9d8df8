"""csrc/gates/normal.h in Triton, and its comments hold here: the gate of the GELU, x Phi(x)."""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.arithmetic import (
    fma,
    magnitude,
    magnitude_or_limit,
    negated,
    polynomial,
    positive_part,
    power_of_two,
    quotient,
)


@triton.jit
def scaled_exp2(h, a, offset: tl.constexpr, C: tl.constexpr):
    """2^(a h + offset) / unscale, as 2^n and 2^f - 1."""
    origin = C.origin + offset
    shifted = fma(h, a, origin)
    f = fma(h, a, origin - shifted)
    return power_of_two(shifted), f * polynomial(f, C.exp2m1)


@triton.jit
def scaled_gaussian(y, a, C: tl.constexpr):
    """y 2^(-k a^2) / unscale."""
    s = a * a
    s_low = fma(a, a, negated(s))
    shifted = fma(s, -C.half_log2e, C.origin)
    f = fma(s_low, -C.half_log2e, fma(s, -C.half_log2e, C.origin - shifted))
    scaled = y * power_of_two(shifted)
    return fma(scaled, f * polynomial(f, C.exp2m1), scaled)


@triton.jit
def value(x, C: tl.constexpr):
    if C.precision == "fast_bf16":
        a = magnitude(x, C.value_limit)
        power = tl.exp2(fma(polynomial(a, C.log2_cdf), a, C.log2_scale - 1))
        return fma(a * -C.unscale, power, positive_part(x))
    elif C.is_half:
        a = magnitude(x, C.value_limit)
        integral, fractional = scaled_exp2(polynomial(a, C.log2_cdf), a, -1.0, C)
        scaled = a * -C.unscale
        y = fma(scaled, integral, positive_part(x))
        return fma(scaled * integral, fractional, y)
    else:
        a = magnitude(x, C.limit)
        z = fma(negated(a), quotient(a, a + C.value_pole, C), a)
        tail = z * scaled_gaussian(polynomial(z, C.value_factor), a, C)
        return fma(tail, -C.unscale, positive_part(x))


@triton.jit
def derivative(x, C: tl.constexpr):
    if C.is_half:
        a = magnitude(x, C.derivative_limit)
        distance = fma(a, -C.slope * C.unscale, 0.5 * C.unscale)
        integral, fractional = scaled_exp2(polynomial(a, C.log2_derivative), a, 0.0, C)
        scaled = distance * integral
        whole = fma(integral, fractional, integral)
        return tl.where(x > 0, fma(negated(distance), whole, 1.0), fma(scaled, fractional, scaled))
    else:
        a = magnitude(x, C.limit)
        distance = fma(a, -C.unscale, C.root_hi * C.unscale) + C.root_lo * C.unscale
        factor = polynomial(quotient(a, a + C.derivative_pole, C), C.derivative_factor)
        d = scaled_gaussian(factor, a, C)
        return tl.where(x > 0, fma(negated(distance), d, 1.0), distance * d)


@triton.jit
def second_derivative(x, C: tl.constexpr):
    a = magnitude(x, C.limit)
    factor = polynomial(a * a, C.density_factor) * fma(negated(a), a, 2.0)
    return scaled_gaussian(factor, a, C) * C.unscale


@triton.jit
def in_tail(x, u, C: tl.constexpr):
    """Whether u < 2^32 Phi(-|x|) - 1."""
    root = polynomial(magnitude_or_limit(x, C.tail_limit), C.tail_root)
    power_2 = root * root
    power_4 = power_2 * power_2
    power_8 = power_4 * power_4
    return u < fma(power_8, power_8, -1.0)
