"""The base class of all modules."""

from typing import NoReturn

from torch import nn


class Module(nn.Module):
    """An ``nn.Module`` that ``torch.jit.script`` refuses with a clear error."""

    def __prepare_scriptable__(self) -> NoReturn:
        """Called by ``torch.jit.script`` before it compiles. Its compiler does not support the
        functions' keyword-only arguments, and its error does not name the module."""
        raise TypeError(
            f"torch.jit.script does not compile {type(self).__name__} of gelu_kernels.nn: "
            "use torch.export or torch.jit.trace"
        )
