"""compute-sanitizer sees every kernel: tests/sanitize.py calls each operator that has one."""

import pytest
import sanitize
import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Calls(TorchDispatchMode):
    """The names of the operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func.name())
        return func(*args, **(kwargs or {}))


def test_every_operator_is_sanitized(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that have a kernel for each device; the others are made of them."""
    monkeypatch.setattr(sanitize, "DTYPES", [torch.float32])
    with Calls() as calls:
        for dy, x, bias in sanitize.tensors("meta"):
            sanitize.run(dy, x, bias)
    registered = {
        name
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("gelu_kernels::")
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU")
    }
    assert len(registered) >= 11
    assert registered <= calls.names
