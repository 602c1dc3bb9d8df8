"""The primitives of gelu_kernels/formulas/arithmetic.py in Triton; csrc/gates/arithmetic.h has
the same.

Kernels are compiled without contraction: the GPU executes the IEEE operations as they are written,
in that order.
"""

import triton
import triton.language as tl

# The types in the annotations of the formulas.
Real, Constants = tl.tensor, tl.constexpr


@triton.jit
def constant(c, x):
    """c in the dtype of x; most of Triton's functions would make it a float."""
    return tl.full((), c, x.dtype)


@triton.jit
def fma(x, y, z):
    if not isinstance(y, tl.tensor):
        y = constant(y, x)
    if not isinstance(z, tl.tensor):
        z = constant(z, x)
    return tl.fma(x, y, z)


@triton.jit
def negated(x):
    """-x, which becomes a modifier of the instruction that uses it; Triton's minus is 0 - x."""
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
def absolute(x):
    return tl.abs(x)


@triton.jit
def magnitude(x, limit):
    return at_most(tl.abs(x), limit)


@triton.jit
def magnitude_or_limit(x, limit):
    return tl.minimum(tl.abs(x), limit)


@triton.jit
def positive_part(x):
    return tl.maximum(x, negated(constant(0.0, x)))  # a literal -0.0 would become 0


@triton.jit
def where(condition, y, otherwise):
    return tl.where(condition, y, otherwise)


@triton.jit
def approximate_reciprocal(x, C: tl.constexpr):
    """1 / x to 2^-22, for x far from overflow and underflow."""
    if C.backend == "cuda":  # one instruction, as x is in its range
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return 1.0 / x


@triton.jit
def approximate_exp2(x, C: tl.constexpr):
    """2^x to 2^-22; a subnormal number in or out is 0."""
    if C.backend == "cuda":  # one instruction; tl.exp2 scales subnormal numbers
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return tl.exp2(x)


@triton.jit
def approximate_logistic(x, C: tl.constexpr):
    """1 / (1 + 2^x)."""
    return approximate_reciprocal(approximate_exp2(x, C) + 1.0, C)


@triton.jit
def refined_reciprocal(x, C: tl.constexpr):
    """1 / x to about half a unit in the last place, by a Newton step."""
    estimate = approximate_reciprocal(x, C)
    return fma(estimate, fma(negated(x), estimate, 1.0), estimate)


@triton.jit
def quotient(n, d, C: tl.constexpr):
    if d.dtype == tl.float64:
        return n / d
    elif C.backend == "cuda":  # the steps of div_rn without its test for special operands
        reciprocal = refined_reciprocal(d, C)
        q = n * reciprocal
        q = fma(reciprocal, fma(negated(d), q, n), q)
        return fma(reciprocal, fma(negated(d), q, n), q)
    else:
        return tl.div_rn(n, d)


@triton.jit
def approximate_quotient(n, d, C: tl.constexpr):
    return n * refined_reciprocal(d, C)


@triton.jit
def reciprocal(x, C: tl.constexpr):
    if x.dtype == tl.float64:
        return 1.0 / x
    elif C.backend == "cuda":
        estimate = refined_reciprocal(x, C)
        return fma(estimate, fma(negated(x), estimate, 1.0), estimate)
    else:
        return tl.div_rn(1.0, x)


@triton.jit
def exp2(x):
    return tl.exp2(x)


@triton.jit
def polynomial(x, P: tl.constexpr):
    degree: tl.constexpr = len(P.coefficients) - 1
    if P.centre != 0:
        x = x - P.centre
    y = tl.full(x.shape, P.coefficients[degree], x.dtype)
    for k in tl.static_range(degree):
        y = fma(y, x, P.coefficients[degree - 1 - k])
    return y


@triton.jit
def power_of_two(shifted):
    if shifted.dtype == tl.float64:
        return from_bits(bits(shifted) << 52)
    else:
        return from_bits(bits(shifted) << 23)


@triton.jit
def scale_by_power_of_two(q, shifted):
    return from_bits(bits(q) + bits(power_of_two(shifted)))
