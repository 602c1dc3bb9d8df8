"""csrc/gates/arithmetic.h in Triton: what the gates are written in.

Kernels are compiled without contraction, so that these are the IEEE operations that are written,
in their order. ``C`` stands for the constants of a gate and a precision (see ``gates``).
"""

import triton
import triton.language as tl


@triton.jit
def constant(c, x):
    """c in the type of x; most of Triton's functions would make a float of it."""
    return tl.full((), c, x.dtype)


@triton.jit
def fma(x, y, z):
    """x y + z, rounded once. y and z may be numbers."""
    if not isinstance(y, tl.tensor):
        y = constant(y, x)
    if not isinstance(z, tl.tensor):
        z = constant(z, x)
    return tl.fma(x, y, z)


@triton.jit
def negated(x):
    """-x, as a modifier of the instruction that takes it; Triton's minus is 0 - x."""
    return x * -1.0


@triton.jit
def bits(x):
    if x.dtype == tl.float64:
        return x.to(tl.int64, bitcast=True)
    else:
        return x.to(tl.int32, bitcast=True)


@triton.jit
def from_bits(u):
    if u.dtype == tl.int64:
        return u.to(tl.float64, bitcast=True)
    else:
        return u.to(tl.float32, bitcast=True)


@triton.jit
def at_most(x, limit):
    """x, or `limit` if that is less; NaN stays NaN."""
    return tl.minimum(x, limit, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def magnitude(x, limit):
    """|x|, at most `limit`; NaN stays NaN."""
    return at_most(tl.abs(x), limit)


@triton.jit
def magnitude_or_limit(x, limit):
    """|x|, at most `limit`; NaN becomes `limit`."""
    return tl.minimum(tl.abs(x), limit)


@triton.jit
def positive_part(x):
    """x, or -0 for a negative one. What NaN gives does not matter: the rest of the gate is NaN."""
    return tl.maximum(x, negated(constant(0.0, x)))  # a literal -0.0 would become 0


@triton.jit
def approximate_reciprocal(x, C: tl.constexpr):
    """To 2^-22; x is far from overflow and underflow."""
    if C.backend == "cuda":  # in one instruction: x is in the range of it
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return 1.0 / x


@triton.jit
def refined_reciprocal(x, C: tl.constexpr):
    """To about half a unit in the last place, by a step of Newton's."""
    estimate = approximate_reciprocal(x, C)
    return fma(estimate, fma(negated(x), estimate, 1.0), estimate)


@triton.jit
def quotient(n, d, C: tl.constexpr):
    """n/d, correctly rounded; n, d and n/d are far from overflow and underflow."""
    if d.dtype == tl.float64:
        return n / d
    else:
        reciprocal = refined_reciprocal(d, C)
        q = n * reciprocal
        q = fma(reciprocal, fma(negated(d), q, n), q)
        return fma(reciprocal, fma(negated(d), q, n), q)


@triton.jit
def polynomial(x, P: tl.constexpr):
    """By Horner's rule."""
    degree: tl.constexpr = len(P.coefficients) - 1
    if P.centre != 0:
        x = x - P.centre
    y = tl.full(x.shape, P.coefficients[degree], x.dtype)
    for k in tl.static_range(degree):
        y = fma(y, x, P.coefficients[degree - 1 - k])
    return y


# `shifted` is the sum of a number and of an origin that is 1.5 2^23 (2^52) and more: the number,
# rounded to an integer n, is left in the low bits, and so is the rest of the origin.


@triton.jit
def power_of_two(shifted):
    """2^n, if the origin holds the exponent bias."""
    if shifted.dtype == tl.float64:
        return from_bits(bits(shifted) << 52)
    else:
        return from_bits(bits(shifted) << 23)


@triton.jit
def scale_by_power_of_two(q, shifted):
    """q 2^n, if the origin holds no bias; q and the result must be normal numbers."""
    return from_bits(bits(q) + bits(power_of_two(shifted)))
