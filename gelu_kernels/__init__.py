"""Fused GELU operators for PyTorch, forward and backward, accurate to the last bit or nearly so.

Importing the package registers ``torch.ops.gelu_kernels``. ``functional`` and ``nn`` are the
documented Python interface; ``replace_activations`` puts them into an existing model.
"""

from gelu_kernels import library

__path__.append(library.load())  # for `_C`

from gelu_kernels import backend, compile, distributed, flops, functional, nn, random_seed  # noqa: E402  (need the operators)
from gelu_kernels.decompositions import decompositions  # noqa: E402
from gelu_kernels.replace import replace_activations, replace_gelu  # noqa: E402

backend.register()
distributed.register()
flops.register()
random_seed.register()

__all__ = [
    "compile",
    "decompositions",
    "functional",
    "nn",
    "replace_activations",
    "replace_gelu",
]
__version__ = "0.2.0"
