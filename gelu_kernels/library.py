"""Finds and loads the operators that were built for the installed torch.

The folder torch2.13 contains the operators for torch 2.13 and the extension module ``_C``. A torch
newer than every folder uses the newest one, if that passes self_test.py.
"""

import subprocess
import sys
import warnings
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from pathlib import Path

import torch

from gelu_kernels.compatibility import release

PACKAGE = Path(__file__).parent
KERNELS = PACKAGE / "libgelu_kernels_without_torch.so"
OPERATORS = "libgelu_kernels.so"
REMEDY = (
    "`pip install --force-reinstall --no-deps --no-cache-dir --no-build-isolation --no-binary"
    " gelu_kernels gelu_kernels` builds it for the installed torch, and so does `pip install"
    " --no-build-isolation .` in its source tree"
)


def find() -> Path:
    """The folder for the installed torch. Raises ImportError if there is none, or if its ``_C`` is
    for another Python."""
    folders = {release(path.name.removeprefix("torch")): path for path in _built()}
    if not folders:
        raise ImportError(f"gelu_kernels has not been built in {PACKAGE}: {REMEDY}")
    folder = folders.get(min(release(torch.__version__), max(folders)))
    if folder is None:
        raise ImportError(f"{_both()}: {REMEDY}")
    if PathFinder.find_spec("_C", [str(folder)]) is None:
        there = ", ".join(path.name for path in folder.glob("_C.*")) or "nothing"
        raise ImportError(
            f"gelu_kernels was built for another Python: {folder} has {there}, and this one needs"
            f" _C{EXTENSION_SUFFIXES[0]}; {REMEDY}"
        )
    return folder


def load() -> str:
    """Registers the operators, and returns their folder. Raises ImportError if they do not work
    with the installed torch."""
    folder = find()
    if release(folder.name.removeprefix("torch")) < release(torch.__version__):
        _try(folder)
    try:
        torch.ops.load_library(folder / OPERATORS)
    except OSError as error:
        why = error.__cause__ or error  # torch names only the file
        said = f"{_both()}, but its library does not load: {why}; {REMEDY}"
        raise ImportError(said) from error
    return str(folder)


def _built() -> list[Path]:
    return sorted(PACKAGE.glob("torch[0-9]*"))


def _both() -> str:
    built = ", ".join(path.name.removeprefix("torch") for path in _built())
    return f"gelu_kernels was built for torch {built}, and torch {torch.__version__} is installed"


def _try(folder: Path) -> None:
    """Raises ImportError unless the operators pass the self-test. It runs in a separate process,
    because operators built for another interface of torch may crash."""
    source = (PACKAGE / "self_test.py").read_text()
    command = [sys.executable, "-W", "ignore", "-c", source, str(folder)]
    tried = subprocess.run(command, capture_output=True, text=True)
    if tried.returncode:
        why = (tried.stderr.splitlines() or [f"exit status {tried.returncode}"])[-1]
        raise ImportError(
            f"{_both()}, with which the newest build fails a self-test ({why}): {REMEDY}"
        )
    warnings.warn(f"{_both()}: the newest build passed a self-test and is used", stacklevel=4)
