"""Polynomials in the primitives of ``arithmetic``; Triton has its own primitive for them."""

from gelu_kernels.formulas.arithmetic import Real, constant, fma
from gelu_kernels.formulas.coefficients import Polynomial


def polynomial(x: Real, P: Polynomial) -> Real:
    """By Horner's rule."""
    if P.centre != 0:
        x = x - P.centre
    *lower, highest = P.coefficients
    y = constant(highest, x)
    for c in reversed(lower):
        y = fma(y, x, c)
    return y
