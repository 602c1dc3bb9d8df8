"""How CMake is told to compile; what comes of it, all other tests show."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from release.environments import PATH
from tests import ROOT

MISSING = [tool for tool in ("cmake", "ninja") if shutil.which(tool, path=PATH) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}")

FROM_SETUP = [
    "TORCH_INCLUDE_DIRS",
    "TORCH_LIBRARY_DIR",
    "PYTHON_INCLUDE_DIR",
    "PYTHON_MODULE_SUFFIX",
]


def compile_commands(folder: Path, source: Path = ROOT, **options: str) -> list[str]:
    """Without the CUDA kernels, though there be a compiler for them, as beside a CUDA torch."""
    options |= dict.fromkeys(FROM_SETUP, "none")
    options |= {"GELU_KERNELS_CUDA": "OFF", "CMAKE_CUDA_COMPILER": "nvcc"}
    options |= {"CMAKE_EXPORT_COMPILE_COMMANDS": "ON"}
    defines = [f"-D{name}={value}" for name, value in options.items()]
    result = subprocess.run(
        ["cmake", "-G", "Ninja", "-S", source, "-B", folder, *defines],
        env=os.environ | {"PATH": PATH},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    entries = json.loads((folder / "compile_commands.json").read_text())
    return [entry["command"] for entry in entries]


@pytest.mark.parametrize("as_errors", ["OFF", "ON"])
def test_warnings_are_errors_where_asked(as_errors: str, tmp_path: Path) -> None:
    commands = compile_commands(tmp_path, CMAKE_COMPILE_WARNING_AS_ERROR=as_errors)
    assert commands and all("-Wall" in command for command in commands)
    assert not any(".cu" in command for command in commands)
    assert {"-Werror" in command for command in commands} == {as_errors == "ON"}
