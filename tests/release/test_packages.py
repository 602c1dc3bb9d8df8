"""The sdist, what is built from it, and what a stranger's machine says of it."""

import os
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest
import setuptools
from elftools.elf.elffile import ELFFile

import gelu_kernels
from gelu_kernels import _C, library
from release import wheel
from release.hub import cmake
from tests import ROOT
from tests.cases import each

pytestmark = pytest.mark.slow

PACKAGE = Path(gelu_kernels.__file__).parent
# `**` does not follow the link that triton_kernels is.
IN_PYTHON = [f"gelu_kernels/{name}" for name in ("**/*.py", "triton_kernels/**/*.py", "py.typed")]
BUILT = Path(_C.__file__).parent
SEARCHED = {  # for each library, the folders
    library.KERNELS: [],
    BUILT / library.OPERATORS: ["$ORIGIN/..", "$ORIGIN/../../torch/lib"],
    Path(_C.__file__): ["$ORIGIN", "$ORIGIN/../../torch/lib"],
}


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
    sources = files(ROOT, "csrc/**/*.*", *IN_PYTHON)
    assert files(unpacked, "csrc/**/*.*", *IN_PYTHON) == sources
    assert not files(unpacked, "**/*.so", "**/*.pyc")


def check_metadata(path: Path) -> None:
    said = path.read_text().splitlines()
    assert f"Version: {gelu_kernels.__version__}" in said
    assert [line for line in said if "torch" in line and "-Dist" in line] == [
        "Requires-Dist: torch>=2.11"
    ]


def test_an_sdist_requires_any_torch(unpacked: Path) -> None:
    check_metadata(unpacked / "PKG-INFO")


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
    check_metadata(metadata)

    command = [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", tmp_path]
    subprocess.run(command, cwd=unpacked, env=environment, check=True)
    assert files(tmp_path, *IN_PYTHON) == files(unpacked, *IN_PYTHON)


TAGS = """
import setuptools
from distutils.core import run_setup
wheel = run_setup("setup.py", stop_after="init").get_command_obj("bdist_wheel")
wheel.ensure_finalized()
print(*wheel.get_tag()[:2])
"""
FREE_THREADED = """#!/bin/sh
echo '{"include": "-", "suffix": ".cpython-314t.so", "python": "cp314", "abi": "cp314t"}'
"""


@pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="needs a Python with a GIL"
)
def test_a_wheel_is_for_every_python_with_a_gil(tmp_path: Path) -> None:
    """And for a free-threaded one that it is built for too."""
    other = tmp_path / "python3.14t"
    other.write_text(FREE_THREADED)
    other.chmod(0o755)
    both = {"GELU_KERNELS_PYTHONS": f"{sys.executable}:{other}"}
    for variables, expected in (({}, "cp310 abi3"), (both, "cp310.cp314 abi3.cp314t")):
        command, environment = [sys.executable, "-c", TAGS], os.environ | variables
        said = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert said.stdout.split("\n")[-2:] == [expected, ""], said.stderr


def test_an_sdist_can_be_configured(unpacked: Path, tmp_path: Path) -> None:
    assert cmake.commands(tmp_path, unpacked)


# Of the packages that are installed, setuptools alone is found.
WITHOUT_TORCH = f"""
import importlib.util, runpy, sys
sys.path.append({str(Path(setuptools.__file__).parents[1])!r})
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *of: None if name == "torch" else find(name, *of)
runpy.run_path("setup.py", run_name="__main__")
"""


def test_without_torch() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-S", "-c", WITHOUT_TORCH, "build_ext"]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 1
    said = result.stderr.splitlines()[-1]
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
    assert "looked for c++, g++, clang++. Install g++ >= 12, or the wheel of" in last


@each(path=SEARCHED)
def test_no_folder_of_the_building_machine_is_searched(path: Path) -> None:
    with path.open("rb") as file:
        dynamic = ELFFile(file).get_section_by_name(".dynamic")
        searched = [tag.runpath.split(":") for tag in dynamic.iter_tags("DT_RUNPATH")]
    assert searched == ([SEARCHED[path]] if SEARCHED[path] else [])


def test_the_kernels_know_nothing_of_torch() -> None:
    """So one library serves every release of torch."""
    with library.KERNELS.open("rb") as file:
        dynamic = ELFFile(file).get_section_by_name(".dynamic")
        needed = {tag.needed for tag in dynamic.iter_tags("DT_NEEDED")}
    assert needed and not [name for name in needed if "torch" in name or "c10" in name]
