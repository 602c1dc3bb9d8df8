"""The primitives of gelu_kernels/formulas/arithmetic.py as operations of Inductor's loops, for
which it generates C++ or Triton.

In C++, float32 and float64 results have the same bits as the kernels: the compiler keeps the IEEE
operations and their order. In Triton a quotient may be off by one unit in the last place.
"""

from __future__ import annotations

import torch
from torch._inductor import virtualized
from torch._inductor.virtualized import OpsValue

from gelu_kernels.formulas.coefficients import Constants

# From csrc/gates/arithmetic.h and IEEE 754.
ROUND_TO_INTEGER = {torch.float32: 1.5 * 2.0**23, torch.float64: 1.5 * 2.0**52}
EXPONENT_BIAS = {torch.float32: 127.0, torch.float64: 1023.0}


class Real:
    """A float32 or float64 value in a loop. Python numbers become constants of its type."""

    def __init__(self, value: OpsValue, dtype: torch.dtype) -> None:
        self.value = value
        self.dtype = dtype

    def __add__(self, other: Real | float) -> Real:
        return Real(virtualized.ops.add(self.value, self._same(other)), self.dtype)

    def __sub__(self, other: Real | float) -> Real:
        return Real(virtualized.ops.sub(self.value, self._same(other)), self.dtype)

    def __rsub__(self, other: float) -> Real:
        return constant(other, self) - self

    def __mul__(self, other: Real | float) -> Real:
        return Real(virtualized.ops.mul(self.value, self._same(other)), self.dtype)

    def __truediv__(self, other: Real | float) -> Real:
        return Real(virtualized.ops.truediv(self.value, self._same(other)), self.dtype)

    def __gt__(self, other: Real | float) -> OpsValue:
        return virtualized.ops.gt(self.value, self._same(other))

    def __lt__(self, other: Real | float) -> OpsValue:
        return virtualized.ops.lt(self.value, self._same(other))

    def _same(self, other: Real | float) -> OpsValue:
        return (other if isinstance(other, Real) else constant(other, self)).value


def constant(c: float, x: Real) -> Real:
    return Real(virtualized.ops.constant(c, x.dtype), x.dtype)


def fma(x: Real, y: Real | float, z: Real | float) -> Real:
    return Real(virtualized.ops.fma(x.value, x._same(y), x._same(z)), x.dtype)


def negated(x: Real) -> Real:
    return Real(virtualized.ops.neg(x.value), x.dtype)


def magnitude(x: Real, limit: float) -> Real:
    return Real(virtualized.ops.minimum(virtualized.ops.abs(x.value), x._same(limit)), x.dtype)


def where(condition: OpsValue, y: Real, otherwise: Real) -> Real:
    return Real(virtualized.ops.where(condition, y.value, otherwise.value), y.dtype)


def positive_part(x: Real) -> Real:
    return where(x < 0.0, constant(-0.0, x), x)


def quotient(n: Real, d: Real, C: Constants) -> Real:
    return n / d


approximate_quotient = quotient


def reciprocal(x: Real, C: Constants) -> Real:
    return constant(1.0, x) / x


def exp2(x: Real) -> Real:
    """Exact for an integer."""
    return Real(virtualized.ops.exp2(x.value), x.dtype)


# The kernels shift the low bits into the exponent. Inductor's C++ does not vectorise a bit cast, so
# exp2 is faster here: 6 % overall.


def power_of_two(shifted: Real) -> Real:
    return exp2(shifted - (ROUND_TO_INTEGER[shifted.dtype] + EXPONENT_BIAS[shifted.dtype]))


def scale_by_power_of_two(q: Real, shifted: Real) -> Real:
    return exp2(shifted - ROUND_TO_INTEGER[shifted.dtype]) * q
