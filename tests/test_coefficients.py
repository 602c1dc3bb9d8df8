"""No number in csrc/gates/coefficients is magic: the fitting programs write these very files."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEADERS = sorted((ROOT / "csrc" / "gates" / "coefficients").glob("*.h"))


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: path.name)
def test_fit_reproduces(header: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    written_by = re.match(r"// Written by `python -m (fit\.\w+)`", header.read_text())
    assert written_by, f"{header.name} does not name its program"
    monkeypatch.setattr(importlib.import_module("fit.header"), "COEFFICIENTS", tmp_path)
    importlib.import_module(written_by[1]).main()
    assert (tmp_path / header.name).read_text() == header.read_text()
