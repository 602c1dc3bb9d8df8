"""The primitives of the formulas, here for NumPy arrays of float32.

triton_kernels/arithmetic.py and gelu_kernels/compile/arithmetic.py have the same ones. They are
IEEE operations, as in csrc/gates/arithmetic.h, and the same operations give the same bits.
"""

from contextlib import suppress
from typing import TypeVar

from gelu_kernels.formulas.coefficients import Constants

with suppress(ImportError):  # Triton and Inductor do not need it
    import numpy as np

Real = TypeVar("Real")  # a number or an array of the arithmetic


def constant(c: float, x: Real) -> Real:
    """c in the type of x."""
    return x.dtype.type(c)


def fma(x: Real, y: Real | float, z: Real | float) -> Real:
    """x y + z, rounded once; here twice, to 53 bits and to 24, which differs one time in 2^29."""
    return (x.astype(np.float64) * y + z).astype(np.float32)


def negated(x: Real) -> Real:
    return -x


def at_most(x: Real, limit: float) -> Real:
    """x, or `limit` if that is less; NaN stays NaN."""
    return np.minimum(x, constant(limit, x))


def absolute(x: Real) -> Real:
    return abs(x)


def magnitude(x: Real, limit: float) -> Real:
    """|x|, at most `limit`; NaN stays NaN."""
    return np.minimum(abs(x), constant(limit, x))


def magnitude_or_limit(x: Real, limit: float) -> Real:
    """|x|, at most `limit`; NaN becomes `limit`."""
    return np.fmin(abs(x), constant(limit, x))


def positive_part(x: Real) -> Real:
    """x, or -0 for a negative x. For NaN any result will do: the rest of the gate is NaN."""
    return np.where(x < 0, constant(-0.0, x), x)


def where(condition: Real, y: Real, otherwise: Real) -> Real:
    return np.where(condition, y, otherwise)


def quotient(n: Real, d: Real, C: Constants) -> Real:
    """n/d, correctly rounded; n, d and n/d are far from overflow and underflow. C names the
    compiler's target."""
    return n / d


def approximate_quotient(n: Real, d: Real, C: Constants) -> Real:
    """n/d, to about a unit in the last place."""
    return n / d


def reciprocal(x: Real, C: Constants) -> Real:
    """1/x, correctly rounded, for x and 1/x far from overflow and underflow; otherwise
    undefined."""
    with np.errstate(divide="ignore", over="ignore"):
        return constant(1.0, x) / x


def approximate_reciprocal(x: Real, C: Constants) -> Real:
    """1/x by a GPU's special function unit, with an error of 2^-23."""
    return constant(1.0, x) / x


def approximate_exp2(x: Real, C: Constants) -> Real:
    """2^x by a GPU's special function unit, with an error of 2^-22."""
    return np.exp2(x)


def approximate_logistic(x: Real, C: Constants) -> Real:
    """1 / (1 + 2^x) by both."""
    return approximate_reciprocal(approximate_exp2(x, C) + 1, C)


def exp2(x: Real) -> Real:
    """2^x, to a unit in the last place or by a GPU's special function unit."""
    return np.exp2(x)


# `shifted` is a number plus an origin of at least 1.5 2^23 (2^52). Its low bits hold the number,
# rounded to an integer n, plus what the origin exceeds 1.5 2^23 (2^52) by.


def power_of_two(shifted: Real) -> Real:
    """2^n, if the origin holds the exponent bias."""
    return (shifted.view(np.int32) << 23).view(np.float32)


def scale_by_power_of_two(q: Real, shifted: Real) -> Real:
    """q 2^n, if the origin holds no bias; q and the result must be normal numbers."""
    return (q.view(np.int32) + power_of_two(shifted).view(np.int32)).view(np.float32)
