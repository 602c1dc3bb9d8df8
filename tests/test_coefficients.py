"""No number of a gate is magic: the fitting programs write these files, in C++ and in Python."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEADERS = sorted((ROOT / "csrc" / "gates" / "coefficients").glob("*.h"))
MODULES = ROOT / "triton_kernels" / "coefficients"


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: path.name)
def test_fit_reproduces(header: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    written_by = re.match(r"// Written by `python -m (fit\.\w+)`", header.read_text())
    assert written_by, f"{header.name} does not name its program"
    monkeypatch.setattr(importlib.import_module("fit.coefficients"), "ROOT", tmp_path)
    importlib.import_module(written_by[1]).main()
    for path in (header, MODULES / f"{header.stem}.py"):
        assert (tmp_path / path.relative_to(ROOT)).read_text() == path.read_text()


def test_every_module_has_its_header() -> None:
    modules = {path.stem for path in MODULES.glob("*.py")} - {"__init__"}
    assert modules == {path.stem for path in HEADERS}
