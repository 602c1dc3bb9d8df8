"""Handles differences between torch releases, and loads the library, which only works with the
release that it was built for. csrc/ops/compatibility.h handles the differences in C++."""

from pathlib import Path

import torch
from torch import Tensor

REMEDY = "`pip install --no-build-isolation .` in its source tree builds it for the installed torch"


def release(version: str) -> str:
    """2.13 for 2.13.0+cpu. A patch does not change torch's C++ interface."""
    return ".".join(version.split(".")[:2])


def load_library() -> None:
    """Raises ImportError where the library is missing or was built for another release of torch."""
    folder = Path(__file__).parent
    try:
        from gelu_kernels.built_for import TORCH
    except ModuleNotFoundError as error:
        raise ImportError(f"gelu_kernels has not been built in {folder}: {REMEDY}") from error
    both = f"gelu_kernels was built for torch {TORCH}, and torch {torch.__version__} is installed"
    if release(TORCH) != release(torch.__version__):
        wheel = f"install the wheel of gelu_kernels for torch {release(torch.__version__)}"
        raise ImportError(f"{both}: {wheel}, or build it: {REMEDY}")
    try:
        torch.ops.load_library(folder / "libgelu_kernels.so")
    except OSError as error:
        why = error.__cause__ or error  # torch names only the file
        raise ImportError(f"{both}, but its library does not load: {why}; {REMEDY}") from error


def ready_to_redistribute(argument: object) -> object:
    """For an operator below autograd. Under no_grad, redistribute of torch 2.11 and 2.12 calls
    detach_, for which their DTensor has no rule. The detach of torch 2.15 redistributes itself."""
    is_old = release(torch.__version__) in ("2.11", "2.12")
    return argument.detach() if is_old and isinstance(argument, Tensor) else argument


def memory_budget(node: torch.fx.Node) -> float:
    """The activation memory budget that torch.compile's partitioner uses for a node. Torch 2.11 has
    one budget for all nodes."""
    of_region = getattr(torch.fx.traceback, "_get_memory_budget_annotation", lambda node: None)
    budget = of_region(node)
    return torch._functorch.config.activation_memory_budget if budget is None else budget
