"""The sigmoid approximation of the GELU: x sigmoid(1.702 x)."""

from gelu_kernels.formulas.coefficients.logistic_of_cubic import Logistic1702Constants
from gelu_kernels.formulas.logistic_of_cubic import *  # noqa: F403 (the functions of the family)
from gelu_kernels.formulas.logistic_of_cubic import constants_of

constants = constants_of(Logistic1702Constants)
