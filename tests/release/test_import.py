"""``import gelu_kernels``: what it brings into a program that has imported torch, and its error
with a torch that the library was not built for."""

import re
import sys
from pathlib import Path

import pytest
import torch

from gelu_kernels import built_for, compatibility
from tests.new_process import python

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


def test_another_release_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "9.87.1+cu999")
    said = f"built for torch {re.escape(built_for.TORCH)}, and torch 9.87.1\\+cu999 is installed: "
    remedy = "install the wheel of gelu_kernels for torch 9.87, or build it: `pip install"
    with pytest.raises(ImportError, match=said + remedy):
        compatibility.load_library()


def test_another_patch_of_the_same_release(monkeypatch: pytest.MonkeyPatch) -> None:
    release = compatibility.release(torch.__version__)
    monkeypatch.setattr(torch, "__version__", f"{release}.99+cu999")
    compatibility.load_library()


def test_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gelu_kernels.built_for", None)
    with pytest.raises(ImportError, match="has not been built in .*gelu_kernels: `pip install"):
        compatibility.load_library()


def test_a_library_that_does_not_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of another compiler, or cut short by a full disk."""
    (tmp_path / "libgelu_kernels.so").write_bytes(b"\x7fELF")
    monkeypatch.setattr(compatibility, "__file__", str(tmp_path / "compatibility.py"))
    with pytest.raises(ImportError, match="does not load: .*file too short.*pip install"):
        compatibility.load_library()


def test_what_is_built_is_for_this_torch() -> None:
    assert torch.__version__ == built_for.TORCH
