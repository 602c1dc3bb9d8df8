"""The SiLU: x sigmoid(x)."""

from gelu_kernels.formulas.coefficients.logistic_of_cubic import LogisticConstants
from gelu_kernels.formulas.logistic_of_cubic import *  # noqa: F403 (the functions of the family)
from gelu_kernels.formulas.logistic_of_cubic import constants_of

constants = constants_of(LogisticConstants)
ties = "any"
