"""Loads the operators' library that the Hub's builder made; `kernels` has chosen the one for the
installed torch."""

from pathlib import Path

import torch

PACKAGE = Path(__file__).parent


def load() -> str:
    (library,) = PACKAGE.parent.glob("_gelu_kernels_*.so")
    torch.ops.load_library(library)
    return str(PACKAGE)  # the folder that has `_C`
