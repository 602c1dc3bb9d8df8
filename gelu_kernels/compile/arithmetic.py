"""csrc/gates/arithmetic.h in the operations of Inductor's loops, which it writes in C++ or Triton.

Float32 and float64 have the bits of the kernels where Inductor writes C++: these are the IEEE
operations that are written, in their order. In Triton a quotient may be off by a unit.
"""

from __future__ import annotations

import torch
from torch._inductor import virtualized
from torch._inductor.virtualized import OpsValue

from gelu_kernels.triton_kernels.coefficients import Polynomial

# Of csrc/gates/arithmetic.h, and of IEEE 754.
ROUND_TO_INTEGER = {torch.float32: 1.5 * 2.0**23, torch.float64: 1.5 * 2.0**52}
EXPONENT_BIAS = {torch.float32: 127.0, torch.float64: 1023.0}


class Real:
    """A float32 or float64 of a loop. A Python number beside it is a constant of its type."""

    def __init__(self, value: OpsValue, dtype: torch.dtype) -> None:
        self.value = value
        self.dtype = dtype

    def constant(self, c: float) -> Real:
        return Real(virtualized.ops.constant(c, self.dtype), self.dtype)

    def __add__(self, other: Real | float) -> Real:
        return Real(virtualized.ops.add(self.value, self._same(other)), self.dtype)

    def __sub__(self, other: Real | float) -> Real:
        return Real(virtualized.ops.sub(self.value, self._same(other)), self.dtype)

    def __rsub__(self, other: float) -> Real:
        return self.constant(other) - self

    def __mul__(self, other: Real | float) -> Real:
        return Real(virtualized.ops.mul(self.value, self._same(other)), self.dtype)

    def __truediv__(self, other: Real | float) -> Real:
        return Real(virtualized.ops.truediv(self.value, self._same(other)), self.dtype)

    def __neg__(self) -> Real:
        return Real(virtualized.ops.neg(self.value), self.dtype)

    def _same(self, other: Real | float) -> OpsValue:
        return (other if isinstance(other, Real) else self.constant(other)).value


def fma(x: Real, y: Real | float, z: Real | float) -> Real:
    """x y + z, rounded once."""
    return Real(virtualized.ops.fma(x.value, x._same(y), x._same(z)), x.dtype)


def magnitude(x: Real, limit: float) -> Real:
    """|x|, at most `limit`; NaN stays NaN."""
    return Real(virtualized.ops.minimum(virtualized.ops.abs(x.value), x._same(limit)), x.dtype)


def where_positive(x: Real, y: Real, otherwise: Real) -> Real:
    return Real(
        virtualized.ops.where(virtualized.ops.gt(x.value, x._same(0.0)), y.value, otherwise.value),
        x.dtype,
    )


def positive_part(x: Real) -> Real:
    """x, or -0 for a negative one. What NaN gives does not matter: the rest of the gate is NaN."""
    negative = virtualized.ops.lt(x.value, x._same(0.0))
    return Real(virtualized.ops.where(negative, x._same(-0.0), x.value), x.dtype)


def polynomial(x: Real, p: Polynomial) -> Real:
    """By Horner's rule."""
    if p.centre != 0:
        x = x - p.centre
    *lower, highest = p.coefficients
    y = x.constant(highest)
    for c in reversed(lower):
        y = fma(y, x, c)
    return y


def exp2(x: Real) -> Real:
    """2^x, to about a unit in the last place; exact for an integer."""
    return Real(virtualized.ops.exp2(x.value), x.dtype)


# `shifted` is the sum of a number and of an origin that is 1.5 2^23 (2^52) and more: the number,
# rounded to an integer n, is left in its low bits, and so is the rest of the origin. The kernels
# shift these to where an exponent is. Inductor's C++ makes vectors of a bit cast's elements one by
# one; exp2, which is exact for integers, takes 6 % less time in all.


def power_of_two(shifted: Real) -> Real:
    """2^n, if the origin holds the exponent bias."""
    return exp2(shifted - (ROUND_TO_INTEGER[shifted.dtype] + EXPONENT_BIAS[shifted.dtype]))


def scale_by_power_of_two(q: Real | float, shifted: Real) -> Real:
    """q 2^n, if the origin holds no bias; q and the result must be normal numbers."""
    return exp2(shifted - ROUND_TO_INTEGER[shifted.dtype]) * q
