"""How CMake is told to compile; what comes of it, all other tests show."""

import shutil
from pathlib import Path

import pytest

from release.environments import PATH
from release.hub import cmake
from tests.cases import each

MISSING = [tool for tool in ("cmake", "ninja") if shutil.which(tool, path=PATH) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}")


@each(as_errors=["OFF", "ON"])
def test_warnings_are_errors_where_asked(as_errors: str, tmp_path: Path) -> None:
    """And no CUDA kernel is compiled, though there be a compiler, as beside a CUDA torch."""
    options = {"CMAKE_COMPILE_WARNING_AS_ERROR": as_errors, "CMAKE_CUDA_COMPILER": "nvcc"}
    commands = [entry["command"] for entry in cmake.commands(tmp_path / as_errors, **options)]
    assert commands and all("-Wall" in command for command in commands)
    assert not any(".cu" in command for command in commands)
    assert {"-Werror" in command for command in commands} == {as_errors == "ON"}
