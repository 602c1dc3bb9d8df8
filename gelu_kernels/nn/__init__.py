"""The operators as modules.

Formulas: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), section 2. ``approximate``
chooses among them as in :func:`gelu_kernels.functional.gelu`.
"""

from gelu_kernels.nn.cdf import CDFGate
from gelu_kernels.nn.gate import GELU, BiasGELU, CauchyGate, LaLU, LinearGELU, SiLU
from gelu_kernels.nn.glu import GEGLU, SwiGLU
from gelu_kernels.nn.soi import SOIMap

__all__ = [
    "GEGLU",
    "GELU",
    "BiasGELU",
    "CDFGate",
    "CauchyGate",
    "LaLU",
    "LinearGELU",
    "SOIMap",
    "SiLU",
    "SwiGLU",
]
