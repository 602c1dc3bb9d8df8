"""Loads the operators' library that the Hub's builder made; `kernels` has chosen the one for the
installed torch."""

from pathlib import Path

import torch


def load_library() -> None:
    (library,) = Path(__file__).parents[1].glob("_gelu_kernels_*.so")
    torch.ops.load_library(library)
