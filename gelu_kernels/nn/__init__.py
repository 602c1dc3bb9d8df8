"""The operators as modules.

Formulas: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), section 2. ``approximate``
chooses among them as in :func:`gelu_kernels.functional.gelu`.
"""

from gelu_kernels.nn.cdf import CDFGate
from gelu_kernels.nn.gate import GELU, BiasGELU, CauchyGate, LaLU, SiLU
from gelu_kernels.nn.glu import GEGLU, SwiGLU
from gelu_kernels.nn.linear import GateLinear, GLULinear, LinearGELU
from gelu_kernels.nn.mlp import MLP
from gelu_kernels.nn.soi import SOIMap

__all__ = [
    "GEGLU",
    "GELU",
    "MLP",
    "BiasGELU",
    "CDFGate",
    "CauchyGate",
    "GLULinear",
    "GateLinear",
    "LaLU",
    "LinearGELU",
    "SOIMap",
    "SiLU",
    "SwiGLU",
]
