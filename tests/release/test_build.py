"""How CMake is told to compile; what comes of it, all other tests show."""

import shutil
from pathlib import Path

import pytest
import torch

from gelu_kernels import compatibility
from release.environments import PATH
from release.hub import cmake
from tests.cases import each

MISSING = [tool for tool in ("cmake", "ninja") if shutil.which(tool, path=PATH) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}")


@each(as_errors=["OFF", "ON"])
def test_warnings_are_errors_where_asked(as_errors: str, tmp_path: Path) -> None:
    """No CUDA kernel is compiled even if a compiler is given, as it is with a CUDA torch."""
    options = {"CMAKE_COMPILE_WARNING_AS_ERROR": as_errors, "CMAKE_CUDA_COMPILER": "nvcc"}
    commands = [entry["command"] for entry in cmake.commands(tmp_path / as_errors, **options)]
    assert commands and all("-Wall" in command for command in commands)
    assert not any(".cu" in command for command in commands)
    assert {"-Werror" in command for command in commands} == {as_errors == "ON"}


def test_switching_cuda_does_not_compile_the_operators_again(tmp_path: Path) -> None:
    """As `make demo` and then `make test` do: half a minute."""
    commands = cmake.commands(tmp_path)
    release = "{}.{}".format(*compatibility.release(torch.__version__))
    depending = [entry["output"] for entry in commands if "GELU_KERNELS_CUDA" in entry["command"]]
    assert [Path(output).parts[-3] for output in depending] == [f"device_operators_{release}.dir"]
