"""The sdist, what is built from it, and what a stranger's machine says of it."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

import gelu_kernels
from release import wheel
from release.hub import cmake
from tests import ROOT
from tests.cases import each

pytestmark = pytest.mark.slow

PACKAGE = Path(gelu_kernels.__file__).parent
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
    sources = ("csrc/**/*.*", "gelu_kernels/**/*.py", "gelu_kernels/triton_kernels/**/*.py")
    assert files(unpacked, *sources) == files(ROOT, *sources) - {"gelu_kernels/built_for.py"}
    assert not files(unpacked, "**/*.so", "**/built_for.py", "**/*.pyc")


def test_an_sdist_requires_any_torch(unpacked: Path) -> None:
    said = (unpacked / "PKG-INFO").read_text().splitlines()
    assert f"Version: {gelu_kernels.__version__}" in said
    assert "Requires-Dist: torch>=2.11" in said


def test_an_sdist_can_be_configured(unpacked: Path, tmp_path: Path) -> None:
    assert cmake.commands(tmp_path, unpacked)


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
