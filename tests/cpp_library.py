"""C++ of the tests, compiled into a library that a process can load."""

import ctypes
import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.utils import cpp_extension

from release.environments import PATH
from tests import ROOT

WARNINGS = ["-Wall", "-Wextra"]
if os.environ.get("CMAKE_COMPILE_WARNING_AS_ERROR") == "ON":  # as in setup.py
    WARNINGS.append("-Werror")


def processor_flags() -> list[str]:
    """For a fused multiply-add in one instruction. The processor is asked: torch may have been told
    to use less of it."""
    cpuinfo = Path("/proc/cpuinfo")
    has = set(cpuinfo.read_text().split()) if cpuinfo.exists() else set()
    has_fma = {"avx2", "fma"} <= has
    return ["-march=x86-64-v3"] if has_fma else []


@contextmanager
def build_folder(name: str) -> Iterator[Path]:
    """For one process at a time."""
    folder = ROOT / "build" / f"{name}-{torch.__version__}"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "in_use", "w") as in_use:
        fcntl.flock(in_use, fcntl.LOCK_EX)
        (folder / "lock").unlink(missing_ok=True)  # torch's lock would outlive a killed process
        yield folder


def compile_and_load(
    name: str,
    sources: Sequence[Path],
    folder: Path,
    flags: Sequence[str],
    link_flags: Sequence[str] = (),
    include: Sequence[Path] = (),
) -> ctypes.CDLL:
    """Only what has changed is compiled. CXXFLAGS come last, as for a sanitizer."""
    os.environ["PATH"] = PATH
    asked = os.environ.get("CXXFLAGS", "").split()
    path = cpp_extension.load(
        name,
        [str(source) for source in sources],
        extra_cflags=["-std=c++20", *flags, *asked],  # torch 2.11 asks for C++17
        extra_ldflags=[*link_flags, *asked],
        extra_include_paths=[str(path) for path in include],
        build_directory=str(folder),
        is_python_module=False,
    )
    return ctypes.CDLL(path)
