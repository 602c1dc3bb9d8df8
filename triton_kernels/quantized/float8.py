"""csrc/gates/float8.h in Triton: eight-bit numbers, and their scales."""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.arithmetic import at_most, bits, from_bits

LEAST_SCALE = tl.constexpr(2.0**-126)  # the smallest whose value and inverse are normal floats


@triton.jit
def largest(IS_E5M2: tl.constexpr):
    return 57344.0 if IS_E5M2 else 448.0


@triton.jit
def to_float8(x, IS_E5M2: tl.constexpr, C: tl.constexpr):
    """Numbers as bytes. Where the GPU has no instruction for it, by the integer arithmetic of
    csrc/gates/float8.h."""
    if C.has_float8:
        rounded = x.to(tl.float8e5 if IS_E5M2 else tl.float8e4nv)
        return rounded.to(tl.uint8, bitcast=True)
    else:
        DROPPED: tl.constexpr = 21 if IS_E5M2 else 20
        BIAS: tl.constexpr = 15 if IS_E5M2 else 7
        LARGEST: tl.constexpr = 0x7B if IS_E5M2 else 0x7E
        LEAST_NORMAL: tl.constexpr = (128 - BIAS) << 23
        ALIGNED: tl.constexpr = (127 + DROPPED + 1 - BIAS) << 23
        u = magnitude_bits(x)
        half = (1 << (DROPPED - 1)) - 1 + (u >> DROPPED & 1)
        normal = (u - (LEAST_NORMAL - (1 << 23)) + half) >> DROPPED
        subnormal = bits(from_bits(u) + 2.0 ** (DROPPED + 1 - BIAS)) - ALIGNED
        finite = tl.minimum(tl.where(u < LEAST_NORMAL, subnormal, normal), LARGEST)
        signed = finite | (bits(x) >> 24 & 0x80)
        return tl.where(u > 0x7F800000, 0x7F, signed).to(tl.uint8)


@triton.jit
def magnitude_bits(x):
    """The bits of |x| as integers; a NaN has the largest."""
    return bits(x) & 0x7FFFFFFF


@triton.jit
def power_scale(amax, rounds_up, IS_E5M2: tl.constexpr, IS_MX: tl.constexpr):
    """The scale for this largest magnitude, as an 8-bit exponent, and its inverse. Only an MX scale
    may be 2^-127, which is no normal float."""
    LARGEST: tl.constexpr = 15 if IS_E5M2 else 8
    exponent = (amax + rounds_up * 0x1FFFFF) >> 23
    finite = tl.maximum(exponent - LARGEST, 0 if IS_MX else 1)
    of_infinity = tl.where(rounds_up != 0, 254, 255 - LARGEST)
    factor_of_infinity = tl.where(rounds_up != 0, 1 << 22, (LARGEST - 1) << 23)
    factor_of_nan = tl.where(rounds_up != 0, 0x7FC00000, 0) if IS_MX else 0x7FC00000
    is_finite = amax < 0x7F800000
    is_nan = amax > 0x7F800000
    scale = tl.where(is_finite, finite, tl.where(is_nan, 255, of_infinity))
    factor = tl.where(is_nan, factor_of_nan, factor_of_infinity)
    return scale, from_bits(tl.where(is_finite, (254 - finite) << 23, factor))


@triton.jit
def float_scale(amax, IS_E5M2: tl.constexpr):
    """The scale of numbers with this largest magnitude, a float, and its inverse."""
    LARGEST = tl.full(amax.shape, largest(IS_E5M2), tl.float32)
    quotient = tl.div_rn(amax, LARGEST)
    is_least = quotient < LEAST_SCALE
    inverse = tl.where(is_least, 1 / LEAST_SCALE, tl.div_rn(LARGEST, amax))
    return tl.where(is_least, LEAST_SCALE, quotient), inverse


@triton.jit
def inverse_of_given(scale):
    inverse = at_most(tl.div_rn(tl.full(scale.shape, 1.0, tl.float32), scale), 2.0**128 - 2.0**104)
    return tl.where(scale > 0, inverse, float("nan"))


@triton.jit
def scale_of(amax, rounds_up, R: tl.constexpr):
    """The scale, as stored, and its inverse. `amax` is the bits of the largest magnitude."""
    if R.has_powers:
        exponent, factor = power_scale(amax, rounds_up, R.is_e5m2, R.is_mx)
        if R.has_exponents:
            return exponent.to(tl.uint8), factor
        else:
            return from_bits(tl.where(exponent == 255, 0x7FC00000, exponent << 23)), factor
    else:
        return float_scale(from_bits(amax), R.is_e5m2)
