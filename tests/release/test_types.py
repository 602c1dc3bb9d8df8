"""What a type checker says to a user of the package."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests import ROOT

MISTAKES = """
import torch
from gelu_kernels import functional, nn

x = torch.zeros(2, 32)
functional.gelu(x, aproximate="tanh")
functional.glu(x, gate=0.5)
nn.LinearGELU(32, "64")
"""


def errors(*files: Path, folder: Path) -> list[tuple[int, str]]:
    """The lines and codes of mypy's errors. In another folder than ROOT, whose path comes from the
    environment: so the package is an installed one, which must have py.typed."""
    command = [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml"]
    result = subprocess.run(
        [*command, "--cache-dir", ROOT / "build" / "mypy", *files],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    found = re.findall(r":(\d+): error: .*\[(.+)\]$", result.stdout, re.MULTILINE)
    assert result.returncode == bool(found), f"{result.stdout}\n{result.stderr}"
    return [(int(line), code) for line, code in found]


def test_the_examples(tmp_path: Path) -> None:
    assert errors(*(ROOT / "examples").glob("*.py"), folder=tmp_path) == []


def test_mistakes(tmp_path: Path) -> None:
    script = tmp_path / "mistakes.py"
    script.write_text(MISTAKES)
    assert errors(script, folder=tmp_path) == [(6, "call-arg"), (7, "arg-type"), (8, "arg-type")]
