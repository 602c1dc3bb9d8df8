"""The base class of all modules."""

from typing import NoReturn

from torch import nn


class Module(nn.Module):
    """An ``nn.Module`` that ``torch.jit.script`` refuses with a clear error."""

    def __prepare_scriptable__(self) -> NoReturn:
        """``torch.jit.script`` calls it before it compiles. Its compiler knows no keyword-only
        arguments, which the functions have, and does not say which module it fails in."""
        raise TypeError(
            f"torch.jit.script does not compile {type(self).__name__} of gelu_kernels.nn: "
            "use torch.export or torch.jit.trace"
        )
