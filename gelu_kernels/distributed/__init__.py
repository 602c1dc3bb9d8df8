"""Registers the operators' rules for DTensor as soon as ``torch.distributed.tensor`` is imported.

That import takes half a second. A program without DTensors does not pay for it.
"""

import warnings

from gelu_kernels.after_import import after_import


def register() -> None:
    after_import("torch.distributed.tensor", _register_now)


def _register_now() -> None:
    try:
        from gelu_kernels.distributed import (  # noqa: F401 (they register)
            elementwise,
            linear,
            quantized,
            random,
        )
    except Exception as error:  # DTensor itself still works
        warnings.warn(
            f"gelu_kernels has no rules for this torch's DTensor: {error!r}", stacklevel=2
        )
