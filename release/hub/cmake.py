"""What CMake compiles, and how. There need not be a compiler for CUDA here: what CMakeLists.txt
says of it is read."""

import json
import os
import re
import shlex
import subprocess
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

from release.environments import PATH, ROOT

# What a source needs, beyond what every C++ compiler is given for a shared library.
NEEDED = re.compile(r"-(f(?!PIC)|m|-param|DGELU_KERNELS_(CAPABILITY|X86))")

Flags = tuple[str, ...]


def stated(pattern: str) -> str:
    """In CMakeLists.txt."""
    return re.search(pattern, (ROOT / "CMakeLists.txt").read_text())[1]


def commands(folder: Path) -> list[dict[str, str]]:
    """As compile_commands.json has them."""
    options = dict.fromkeys(stated(r"foreach\(variable (.*)\)").split(), "none")
    options |= {"GELU_KERNELS_CUDA": "OFF", "CMAKE_EXPORT_COMPILE_COMMANDS": "ON"}
    defines = [f"-D{name}={value}" for name, value in options.items()]
    subprocess.run(
        ["cmake", "-G", "Ninja", "-S", ROOT, "-B", folder, *defines],
        env=os.environ | {"PATH": PATH},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return json.loads((folder / "compile_commands.json").read_text())


def compiled() -> dict[Flags, list[str]]:
    """The C++ sources that CMake compiles, by the flags that they need."""
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
    """In CMake's words, as 80-real and 120."""
    return stated(r"set\(CMAKE_CUDA_ARCHITECTURES (.*)\)").split()
