"""The library of operators, made by the Hub's builder; `kernels` has chosen it for the torch that
is there."""

from pathlib import Path

import torch


def load_library() -> None:
    (library,) = Path(__file__).parents[1].glob("_gelu_kernels_*.so")
    torch.ops.load_library(library)
