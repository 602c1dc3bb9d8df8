"""Devices are compared, and kernels sanitized, with every operator that has a kernel."""

import torch
from every_operator import every_operator
from torch.utils._python_dispatch import TorchDispatchMode


class Calls(TorchDispatchMode):
    """The names of the operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func.name())
        return func(*args, **(kwargs or {}))


def test_every_operator() -> None:
    """Those that have a kernel for each device; the others are made of them."""
    ddx, dy, x = (torch.randn(2, 8, device="meta") for _ in range(3))
    with Calls() as calls:
        for _ in every_operator(ddx, dy, x, torch.randn(8, device="meta"), "normal"):
            pass
    registered = {
        name
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("gelu_kernels::")
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU")
    }
    assert len(registered) >= 11
    assert registered <= calls.names
