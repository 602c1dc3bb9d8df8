"""Fused GELU operators for PyTorch, forward and backward, accurate to the last bit or nearly so.

Importing the package registers ``torch.ops.gelu_kernels``. ``functional`` and ``nn`` are the
documented Python interface.
"""

from pathlib import Path

import torch

torch.ops.load_library(Path(__file__).parent / "libgelu_kernels.so")

from gelu_kernels import backend, functional, nn  # noqa: E402  (they need the operators)

backend.register()

__all__ = ["functional", "nn"]
__version__ = "0.1.0"
