"""The operators as functions.

In eager mode a call goes straight to C++. Under ``torch.compile``, in a torch function mode, or
with a tensor subclass it goes through ``torch.ops.gelu_kernels``, where each can intercept it.
"""

from gelu_kernels.functional.cdf import cdf_gate
from gelu_kernels.functional.dequantize import dequantize, save_quantized
from gelu_kernels.functional.dropout import bias_gelu_dropout, gate_dropout, glu_dropout
from gelu_kernels.functional.gate import bias_gelu, cauchy_gate, gate, gelu, lalu, silu
from gelu_kernels.functional.glu import geglu, glu, swiglu
from gelu_kernels.functional.linear import gate_linear, glu_linear
from gelu_kernels.functional.quantized import (
    Quantized,
    QuantizedWithAmax,
    quantized_gate,
    quantized_geglu,
    quantized_glu,
    quantized_swiglu,
)
from gelu_kernels.functional.quantized_gradients import (
    quantized_gate_backward,
    quantized_glu_backward,
)
from gelu_kernels.functional.soi import bias_soi_map, soi_map

__all__ = [
    "Quantized",
    "QuantizedWithAmax",
    "bias_gelu",
    "bias_gelu_dropout",
    "bias_soi_map",
    "cauchy_gate",
    "cdf_gate",
    "dequantize",
    "gate",
    "gate_dropout",
    "gate_linear",
    "geglu",
    "gelu",
    "glu",
    "glu_dropout",
    "glu_linear",
    "lalu",
    "quantized_gate",
    "quantized_gate_backward",
    "quantized_geglu",
    "quantized_glu",
    "quantized_glu_backward",
    "quantized_swiglu",
    "save_quantized",
    "silu",
    "soi_map",
    "swiglu",
]
