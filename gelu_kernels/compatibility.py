"""Handles differences between torch releases. csrc/ops/compatibility.h handles those in C++."""

import re

import torch
from torch import Tensor

Release = tuple[int, int]  # a patch does not change torch's C++ interface


def release(version: str) -> Release:
    """(2, 13) for 2.13.0+cpu."""
    major, minor = re.match(r"(\d+)\.(\d+)", version).groups()
    return int(major), int(minor)


def ready_to_redistribute(argument: object) -> object:
    """For an operator below autograd. Under no_grad, redistribute of torch 2.11 and 2.12 calls
    detach_, for which their DTensor has no rule. The detach of torch 2.15 redistributes itself."""
    is_old = release(torch.__version__) < (2, 13)
    return argument.detach() if is_old and isinstance(argument, Tensor) else argument


def memory_budget(node: torch.fx.Node) -> float:
    """The activation memory budget that torch.compile's partitioner uses for a node. Torch 2.11 has
    one budget for all nodes."""
    of_region = getattr(torch.fx.traceback, "_get_memory_budget_annotation", lambda node: None)
    budget = of_region(node)
    return torch._functorch.config.activation_memory_budget if budget is None else budget
