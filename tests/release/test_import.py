"""``import gelu_kernels``: what it brings into a program that has imported torch, and the operators
that it loads; its errors where there are none for this torch or this Python."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gelu_kernels import _C, compatibility, library
from tests.cases import each
from tests.new_process import python

BUILT = Path(_C.__file__).parent
INSTALLED = compatibility.release(torch.__version__)
IMPORT = """
import sys
import torch
before = set(sys.modules)
import gelu_kernels
print(*sorted(set(sys.modules) - before))
"""


def test_only_our_own_modules_are_imported() -> None:
    """Triton, SymPy and what torch loads when it needs it take a tenth of a second or more each."""
    modules = python(IMPORT).split()
    assert "gelu_kernels.functional" in modules
    assert not [name for name in modules if name.split(".")[0] != "gelu_kernels"]
    assert not [name for name in modules if name.startswith("gelu_kernels.compile.")]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with the operators for 2.11 and for the installed torch."""
    monkeypatch.setattr(library, "PACKAGE", tmp_path)
    shutil.copytree(BUILT, tmp_path / BUILT.name)
    shutil.copytree(BUILT, tmp_path / "torch2.11", dirs_exist_ok=True)
    shutil.copy(library.KERNELS, tmp_path)
    shutil.copy(Path(library.__file__).with_name("self_test.py"), tmp_path)
    return tmp_path


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The libraries that would be loaded; torch would end the process at the second."""
    found: list[Path] = []
    monkeypatch.setattr(torch.ops, "load_library", found.append)
    return found


@each(patch=["0+cpu", "99+cu999", "0a0+git1234567"])
def test_the_operators_for_the_installed_torch(
    patch: str, package: Path, loaded: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", f"2.11.{patch}")
    assert library.load() == str(package / "torch2.11")
    assert loaded.pop() == package / "torch2.11" / library.OPERATORS


@each(version=["2.10.1", "1.13.0", "2.9.0.dev20250101"])
def test_an_older_torch(version: str, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    said = rf"was built for torch 2\.11, .*torch {re.escape(version)} is installed: `pip install"
    with pytest.raises(ImportError, match=said):
        library.load()


def test_a_newer_torch_gets_the_newest_operators(
    package: Path, loaded: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The self-test runs with the installed torch, for which they were built."""
    monkeypatch.setattr(torch, "__version__", "9.87.0.dev20270101+cu999")
    with pytest.warns(UserWarning, match=r"torch 9\.87.* is installed: the newest build passed"):
        assert library.load() == str(package / BUILT.name)
    assert loaded == [package / BUILT.name / library.OPERATORS]


WRONG = {
    "values": ("/ 2**0.5) / 2", "/ 2**0.5) / 3", "AssertionError|Mismatched|allowed"),
    "a crash": ("def main", "import os; os.abort()\ndef main", "exit status -6|Abort"),
    "symbols": ("libgelu_kernels.so", "libgelu_kernels_missing.so", "Could not load"),
}


@each(kind=WRONG)
def test_operators_that_fail_the_self_test(
    kind: str, package: Path, loaded: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    right, wrong, said = WRONG[kind]
    source = Path(library.__file__).with_name("self_test.py").read_text()
    assert right in source
    (package / "self_test.py").write_text(source.replace(right, wrong))
    monkeypatch.setattr(torch, "__version__", "9.87.0")
    with pytest.raises(
        ImportError, match=rf"the newest build fails a self-test \(.*({said}).*`pip install"
    ):
        library.load()
    assert not loaded


def test_the_self_test_needs_the_operators_of_this_torch(tmp_path: Path) -> None:
    """It calls what it is given, not the package that is installed."""
    shutil.copytree(BUILT, tmp_path / BUILT.name)
    source = Path(library.__file__).with_name("self_test.py").read_text()
    command = [sys.executable, "-c", source, str(tmp_path / BUILT.name)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode and library.KERNELS.name in result.stderr


def test_another_python(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (extension,) = (package / BUILT.name).glob("_C.*")
    extension.rename(extension.with_name("_C.cpython-39-x86_64-linux-gnu.so"))
    said = "built for another Python: .* has _C.cpython-39-x86_64-linux-gnu.so, and this one needs"
    with pytest.raises(ImportError, match=said):
        library.load()


def test_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "PACKAGE", tmp_path)
    with pytest.raises(ImportError, match="has not been built in .*: `pip install"):
        library.load()


def test_a_library_that_does_not_load(package: Path) -> None:
    """As of another compiler, or cut short by a full disk."""
    (package / BUILT.name / library.OPERATORS).write_bytes(b"\x7fELF")
    with pytest.raises(ImportError, match="does not load: .*file too short.*pip install"):
        library.load()


def test_what_is_built_is_for_this_torch() -> None:
    assert BUILT.name == "torch{}.{}".format(*INSTALLED)
    assert compatibility.release(_C.build_info()["torch"]) == INSTALLED
