"""Registers the operators' rules for DTensor as soon as ``torch.distributed.tensor`` is imported.

That import takes half a second, which a program without DTensors shall not spend.
"""

import sys
import warnings
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

DTENSOR = "torch.distributed.tensor"


def register() -> None:
    if DTENSOR in sys.modules:
        _register_now()
    else:
        sys.meta_path.insert(0, _RegisterAfterImport())


def _register_now() -> None:
    try:
        from gelu_kernels import (  # noqa: F401 (they register)
            linear_sharding,
            quantized_sharding,
            random_sharding,
            sharding,
        )
    except Exception as error:  # DTensors without ours are none the worse
        warnings.warn(
            f"gelu_kernels has no rules for this torch's DTensor: {error!r}", stacklevel=2
        )


class _RegisterAfterImport(MetaPathFinder):
    """Finds this one module where it is, and follows its execution by the registration."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == DTENSOR else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                _register_now()

        spec.loader.exec_module = execute_and_register
        return spec
