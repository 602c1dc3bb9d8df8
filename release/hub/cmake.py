"""The sources and flags with which CMake compiles. Those for CUDA are read from CMakeLists.txt, as
nvcc may be missing."""

import json
import os
import re
import shlex
import subprocess
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from release.environments import PATH, ROOT

# The flags that a source needs beyond the flags of every shared library.
NEEDED = re.compile(r"-(f(?!PIC)|m|-param|DGELU_KERNELS_(CAPABILITY|X86))")

Flags = tuple[str, ...]


def stated(pattern: str) -> str:
    """The first group of the pattern in CMakeLists.txt."""
    return re.search(pattern, (ROOT / "CMakeLists.txt").read_text())[1]


def commands(folder: Path, source: Path = ROOT, **options: str) -> list[dict[str, str]]:
    """The entries of compile_commands.json, without the CUDA kernels."""
    defines = dict.fromkeys(stated(r"foreach\(variable (.*)\)").split(), "none")
    defines |= {"TORCH_FOLDERS": str(Path(torch.__file__).parent)}
    defines |= {"CMAKE_LIBRARY_OUTPUT_DIRECTORY": str(folder)}
    defines |= {"GELU_KERNELS_CUDA": "OFF", "CMAKE_EXPORT_COMPILE_COMMANDS": "ON", **options}
    subprocess.run(
        ["cmake", "-G", "Ninja", "-S", source, "-B", folder]
        + [f"-D{name}={value}" for name, value in defines.items()],
        env=os.environ | {"PATH": PATH},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return json.loads((folder / "compile_commands.json").read_text())


def compiled() -> dict[Flags, list[str]]:
    """The C++ sources that CMake compiles, grouped by the flags that they need."""
    found = defaultdict(list)
    with TemporaryDirectory() as folder:
        for entry in commands(Path(folder)):
            flags = tuple(filter(NEEDED.match, shlex.split(entry["command"])))
            paths = [entry["file"]]
            if "/Unity/" in entry["file"]:
                text = Path(entry["file"]).read_text()
                paths = re.findall(r'^#include "(.*)"$', text, re.MULTILINE)
            found[flags] += [Path(path).relative_to(ROOT).as_posix() for path in paths]
    return found


def cuda_flag() -> str:
    return stated(r"target_compile_options\(cuda_kernels PRIVATE (-f\S+)")


def cuda_architectures() -> list[str]:
    """As CMake names them, such as 80-real and 120."""
    return stated(r"set\(CMAKE_CUDA_ARCHITECTURES (.*)\)").split()
