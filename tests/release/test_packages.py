"""The sdist, what is built from it, and what a stranger's machine says of it."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import torch
from elftools.elf.elffile import ELFFile

import gelu_kernels
from gelu_kernels import compatibility
from release import wheel
from release.hub import cmake
from tests import ROOT
from tests.cases import each

pytestmark = pytest.mark.slow

PACKAGE = Path(gelu_kernels.__file__).parent
# `**` does not follow the link that triton_kernels is.
IN_PYTHON = [f"gelu_kernels/{name}" for name in ("**/*.py", "triton_kernels/**/*.py", "py.typed")]
BINARIES = ["libgelu_kernels.so", *(path.name for path in PACKAGE.glob("_C.*.so"))]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    sdist = wheel.build_sdist(folder)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return folder / sdist.name.removesuffix(".tar.gz")


def files(folder: Path, *patterns: str) -> set[str]:
    found = (path for pattern in patterns for path in folder.glob(pattern))
    return {str(path.relative_to(folder)) for path in found if path.is_file()}


def test_an_sdist_has_the_sources_and_nothing_that_was_built(unpacked: Path) -> None:
    sources = files(ROOT, "csrc/**/*.*", *IN_PYTHON) - {"gelu_kernels/built_for.py"}
    assert files(unpacked, "csrc/**/*.*", *IN_PYTHON) == sources
    assert not files(unpacked, "**/*.so", "**/built_for.py", "**/*.pyc")


def test_an_sdist_requires_any_torch(unpacked: Path) -> None:
    said = (unpacked / "PKG-INFO").read_text().splitlines()
    assert f"Version: {gelu_kernels.__version__}" in said
    assert "Requires-Dist: torch>=2.11" in said


def test_a_wheel_from_an_sdist(unpacked: Path, tmp_path: Path) -> None:
    """Its version and requirement, by the hook that pip calls, and its Python files."""
    hook = "from setuptools import build_meta as b; b.prepare_metadata_for_build_wheel"
    environment = os.environ | {"FORCE_ONLY_CPU": "1"}
    subprocess.run(
        [sys.executable, "-c", f"{hook}({str(tmp_path)!r})"],
        cwd=unpacked,
        env=environment,
        check=True,
    )
    (metadata,) = tmp_path.glob("*.dist-info/METADATA")
    release = compatibility.release(torch.__version__)
    said = metadata.read_text().splitlines()
    assert f"Version: {gelu_kernels.__version__}+torch{release}.cpu" in said
    assert f"Requires-Dist: torch=={release}.*" in said

    command = [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", tmp_path]
    subprocess.run(command, cwd=unpacked, env=environment, check=True)
    assert files(tmp_path, *IN_PYTHON) == files(unpacked, *IN_PYTHON)


def test_an_sdist_can_be_configured(unpacked: Path, tmp_path: Path) -> None:
    assert cmake.commands(tmp_path, unpacked)


def test_without_torch() -> None:
    """-S leaves out the packages that are installed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-S", "setup.py", "--version"]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 1
    (said,) = result.stderr.splitlines()
    assert said.startswith("gelu_kernels is compiled for the installed PyTorch, which ")
    assert said.endswith("Run `pip install 'torch>=2.11'` first, then install gelu_kernels again.")


def test_without_a_compiler(tmp_path: Path) -> None:
    """One sentence, not CMake's pages."""
    command = [sys.executable, "setup.py", "build_ext", "--build-lib", tmp_path]
    environment = {name: value for name, value in os.environ.items() if name != "CXX"}
    environment |= {"PATH": str(tmp_path), "FORCE_ONLY_CPU": "1"}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert last.startswith("gelu_kernels is compiled when it is installed from its sources")
    assert "looked for c++, g++, clang++. Install g++ >= 12, or a wheel" in last


@each(name=BINARIES)
def test_no_folder_of_the_building_machine_is_searched(name: str) -> None:
    with (PACKAGE / name).open("rb") as file:
        dynamic = ELFFile(file).get_section_by_name(".dynamic")
        (searched,) = (tag.runpath for tag in dynamic.iter_tags("DT_RUNPATH"))
    assert searched.split(":") == ["$ORIGIN", "$ORIGIN/../torch/lib"]
