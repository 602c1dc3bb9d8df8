"""docs/internals/new_gate.diff, the example of contributing.md: it applies to this tree, and the
commands of the page make a correct gate of it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from release.environments import PATH
from tests import ROOT, planted_faults

DIFF = ROOT / "docs" / "internals" / "new_gate.diff"
PAGE = (ROOT / "docs" / "internals" / "contributing.md").read_text()
SECTION = PAGE.partition("## Adding a gate\n")[2].partition("\n## ")[0]
COMMANDS = re.search(r"```sh\n(.*?)```", SECTION, re.DOTALL)[1].splitlines()
ADDED = re.findall(r"^--- /dev/null\n\+\+\+ b/(.*)$", DIFF.read_text(), re.MULTILINE)
CHANGED = re.findall(r"^--- a/(.*)\n\+\+\+ b/", DIFF.read_text(), re.MULTILINE)

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of this one. Of what was built, it has the library, which the fits import."""
    ignored = [Path(line).name for line in (ROOT / ".gitignore").read_text().splitlines()]
    left_out = {".git", *ignored} - {"*.so", "torch[0-9]*"}
    folder = tmp_path / "tree"
    shutil.copytree(ROOT, folder, symlinks=True, ignore=shutil.ignore_patterns(*left_out))
    return folder


def run(command: str, tree: Path) -> str:
    """By this interpreter, and with its programs first."""
    command = re.sub(r"\bpython ", f"{sys.executable} ", command)
    environment = os.environ | {"PATH": PATH, "PYTHONPATH": str(tree), "FORCE_ONLY_CPU": "1"}
    environment["GIT_CEILING_DIRECTORIES"] = str(tree.parent)  # it is in no repository
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):  # of the run that this test is of
        environment.pop(name, None)
    shell = ["bash", "-c", command]
    result = subprocess.run(shell, cwd=tree, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


def test_the_page_names_every_file() -> None:
    assert ADDED and CHANGED
    assert not [path for path in CHANGED if f"`{path}`" not in SECTION]
    assert not [path for path in ADDED if f"`{path.rpartition('/')[0]}/`" not in SECTION]


def test_what_the_page_names_exists() -> None:
    paths = set(re.findall(r"`([\w.]+/[\w./]*)`", PAGE))
    assert len(paths) > 30
    assert not [path for path in paths if not (ROOT / path).exists()]


def test_planted_faults_have_their_places() -> None:
    for fault in planted_faults.FAULTS:
        planted_faults.text_of(fault)


@needs_git
def test_it_applies_in_the_style_of_the_sources(tree: Path) -> None:
    run(COMMANDS[0], tree)
    modules, headers = ([x for x in (*ADDED, *CHANGED) if x.endswith(end)] for end in (".py", ".h"))
    for check in ("check", "format --check"):
        run(f"python -m ruff {check} {' '.join(modules)}", tree)
    run(f"clang-format --dry-run -Werror {' '.join(headers)}", tree)


@needs_git
@pytest.mark.slow
def test_the_gate_is_correct(tree: Path) -> None:
    """All inputs in 16 bits, float32 and float64 within the bounds of the table of operators, and
    the derivatives of every order: as the tests of this tree have it, which the last command runs.
    """
    *made, tested = COMMANDS
    for command in made:
        run(command, tree)
    summary = run(tested, tree).splitlines()[-1]
    assert int(re.search(r"(\d+) passed", summary)[1]) > 20
    assert "x sigmoid(pi x / sqrt(3))" in (tree / "docs" / "guide" / "accuracy.md").read_text()
