"""The tanh approximation of the GELU: x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2, which is
x sigmoid(v(x)) with v(x) = 2 sqrt(2/pi) (x + 0.044715 x^3)."""

from gelu_kernels.formulas.coefficients.logistic_of_cubic import NormalTanhConstants
from gelu_kernels.formulas.logistic_of_cubic import *  # noqa: F403 (the functions of the family)
from gelu_kernels.formulas.logistic_of_cubic import constants_of

constants = constants_of(NormalTanhConstants)
