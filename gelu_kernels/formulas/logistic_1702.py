"""The sigmoid approximation of the GELU: x sigmoid(1.702 x)."""

from gelu_kernels.formulas.coefficients.logistic_of_cubic import Logistic1702Constants
from gelu_kernels.formulas.logistic_of_cubic import (
    constants_of,
    derivative,
    in_tail,
    may_tie,
    second_derivative,
    value,
)

__all__ = ["constants", "derivative", "in_tail", "may_tie", "second_derivative", "value"]

constants = constants_of(Logistic1702Constants)
