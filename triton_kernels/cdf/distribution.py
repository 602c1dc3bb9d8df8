"""F(z) and f(z) of z = (x - loc)/scale: csrc/gates/cdf.h in Triton; its comments apply here too."""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.arithmetic import (
    at_most,
    fma,
    negated,
    quotient,
    reciprocal,
)

LARGEST_BFLOAT16 = tl.constexpr(2.0**128 - 2.0**120)


@triton.jit
def bounded(scale):
    """scale, or half the inverse of the smallest normal number if that is less."""
    return at_most(scale, 2.0**1021 if scale.dtype == tl.float64 else 2.0**125)


@triton.jit
def smallest_normal(x):
    return 2.0**-1022 if x.dtype == tl.float64 else 2.0**-126


@triton.jit
def inverse_of(scale, C: tl.constexpr):
    return tl.where(scale < smallest_normal(scale), float("inf"), reciprocal(scale, C))


@triton.jit
def standard_score(difference, inverse):
    """z, from x - loc and the inverse of scale."""
    return tl.where(difference == 0, 0.0, difference * inverse)


@triton.jit
def clipped(x, limit):
    """x, at least 0 and at most `limit`; NaN becomes 0."""
    return tl.minimum(tl.maximum(x, 0.0), limit)


@triton.jit
def finite(x):
    """The largest bfloat16 in place of infinity."""
    return negated(at_most(negated(at_most(x, LARGEST_BFLOAT16)), LARGEST_BFLOAT16))


@triton.jit
def distribution_of(difference, tail):
    return tl.where(difference > 0, 1.0 - tail, tail)


@triton.jit
def value_at_minus_infinity(scale, C: tl.constexpr):
    return negated(scale * -C.left_limit)  # a literal -0.0 would become 0


@triton.jit
def point(x, loc, scale, inverse, TAIL: tl.constexpr, DENSITY: tl.constexpr, C: tl.constexpr):
    """z, F(z) and f(z) in float32 and float64."""
    difference = x - loc
    z = difference * inverse
    a = tl.abs(z)
    tail = TAIL(a, C)
    density = DENSITY(a, C)
    distribution = distribution_of(z, tail)
    minus_loc = difference - x
    rest = (x - (difference - minus_loc)) - (loc + minus_loc)
    z_low = (fma(negated(z), scale, difference) + rest) * inverse
    rise = density * tl.where(z > 0, negated(z_low), z_low)
    ratio = quotient(rise * 2.0**64, tail * 2.0**64, C)
    is_in_tail = tail > smallest_normal(tail)
    distribution = tl.where(is_in_tail, fma(density, z_low, distribution), distribution)
    density = tl.where(is_in_tail, fma(density, ratio, density), density)
    return z, tl.where(difference == 0, 0.5, distribution), density
