"""csrc/gates/normal.h in Inductor, and its comments hold here: the gate of the GELU, x Phi(x)."""

from gelu_kernels.compile.arithmetic import (
    Real,
    exp2,
    fma,
    magnitude,
    polynomial,
    positive_part,
    power_of_two,
    where_positive,
)
from gelu_kernels.triton_kernels.coefficients import Constants


def scaled_gaussian(y: Real, a: Real, C: Constants) -> Real:
    """y 2^(-k a^2) / unscale."""
    s = a * a
    s_low = fma(a, a, -s)
    shifted = fma(s, -C.half_log2e, C.origin)
    f = fma(s_low, -C.half_log2e, fma(s, -C.half_log2e, C.origin - shifted))
    scaled = y * power_of_two(shifted)
    return fma(scaled, f * polynomial(f, C.exp2m1), scaled)


def value(x: Real, C: Constants) -> Real:
    a = magnitude(x, C.limit)
    z = fma(-a, a / (a + C.value_pole), a)
    tail = z * scaled_gaussian(polynomial(z, C.value_factor), a, C)
    return fma(tail, -C.unscale, positive_part(x))


def derivative(x: Real, C: Constants) -> Real:
    a = magnitude(x, C.limit)
    distance = fma(a, -C.unscale, C.root_hi * C.unscale) + C.root_lo * C.unscale
    factor = polynomial(a / (a + C.derivative_pole), C.derivative_factor)
    d = scaled_gaussian(factor, a, C)
    return where_positive(x, fma(-distance, d, 1.0), distance * d)


def second_derivative(x: Real, C: Constants) -> Real:
    a = magnitude(x, C.limit)
    factor = polynomial(a * a, C.density_factor) * fma(-a, a, 2.0)
    return scaled_gaussian(factor, a, C) * C.unscale


# For 16 bits F(-a) and D(a) are powers of two of polynomials: one exp2, no division.


def half_value(x: Real, C: Constants) -> Real:
    a = magnitude(x, C.value_limit)
    tail = exp2(fma(polynomial(a, C.log2_cdf), a, -1.0))
    return fma(-a, tail, positive_part(x))


def half_derivative(x: Real, C: Constants) -> Real:
    a = magnitude(x, C.derivative_limit)
    d = fma(a, -C.slope, 0.5) * exp2(polynomial(a, C.log2_derivative) * a)
    return where_positive(x, 1.0 - d, d)
