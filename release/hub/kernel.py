"""gelu_kernels as a kernel of the Hugging Face Hub.

`kernels` imports this file under a name of its own. It imports the package in the folder next to it
as `gelu_kernels`, the name by which the package's modules import each other and its operators are
registered. So a process can load it only once.
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import torch

NAME = "gelu_kernels"
FOLDER = Path(__file__).with_name("package")


def load() -> ModuleType:
    """Raises ImportError if the package cannot be loaded, and leaves no module of it behind."""
    other = sys.modules.get(NAME)
    # An import that failed late leaves operators; torch aborts a process that registers them again.
    if other or hasattr(torch.ops.gelu_kernels, "fused_gelu"):
        loaded = other.__file__ if other else "a library of its operators"
        raise ImportError(
            f"gelu_kernels in {FOLDER} cannot be loaded: {loaded} is loaded already, and a process"
            " can have one"
        )
    spec = spec_from_file_location(NAME, FOLDER / "__init__.py")
    package = sys.modules[NAME] = module_from_spec(spec)
    try:
        spec.loader.exec_module(package)
    except BaseException:
        for name in [*sys.modules]:
            if name.partition(".")[0] == NAME:
                del sys.modules[name]
        raise
    return package


package = load()
__all__ = package.__all__
globals().update({name: getattr(package, name) for name in __all__})
