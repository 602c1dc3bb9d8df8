"""``make gpu`` from an exported tree, with every stage on the CPU: interrupted, then to its end."""

import json
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from bench.plan import PLANTED
from tests import ROOT
from tests.bench.processes import MARK, wait_until_none

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not ((ROOT / ".git").exists() and shutil.which("git") and shutil.which("make")),
        reason="needs git, make and the repository",
    ),
]


def git(*arguments: str) -> str:
    result = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True)
    return result.stdout.decode().strip()


def export(folder: Path) -> str:
    """The commit of the exported tree: it has the changes that are not yet committed."""
    commit = git("stash", "create") or git("rev-parse", "HEAD")
    archive = folder / "tree.tar"
    git("archive", "--format=tar", f"--output={archive}", commit)
    with tarfile.open(archive) as tree:
        tree.extractall(folder / "tree", filter="data")
    return commit


def test_rehearsal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, tree, output = export(tmp_path), tmp_path / "tree", tmp_path / "out" / "report.json"
    monkeypatch.setenv(MARK, str(tmp_path))
    for name in ("PYTHONPATH", "VIRTUAL_ENV", "TRITON_INTERPRET"):
        monkeypatch.delenv(name, raising=False)

    def stages() -> dict[str, dict]:
        return json.loads(output.read_text())["stages"] if output.exists() else {}

    command = [sys.executable, "-m", "bench.gpu", "--rehearse", "--output", str(output)]
    with open(tmp_path / "log", "w") as log:
        first = subprocess.Popen(command, cwd=tree, stdout=log, stderr=log)
        while stages().get("headline", {}).get("outcome", "not run") == "not run":
            assert first.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.1)
    first.send_signal(signal.SIGINT)
    assert first.wait() == -signal.SIGINT
    wait_until_none(str(tmp_path))
    before = stages()
    assert before["build"]["outcome"] == before["load"]["outcome"] == "passed"
    assert before["memcheck"]["outcome"] == "not run"

    make = ["make", "gpu", f"PYTHON={sys.executable}", f"OUTPUT={output}", "OPTIONS=--rehearse"]
    second = subprocess.run(make, cwd=tree, capture_output=True, text=True)
    assert second.returncode == 0, second.stdout + second.stderr
    wait_until_none(str(tmp_path))
    after = stages()
    for name in ("build", "load", "headline", "crashes"):
        assert after[name] == before[name], f"{name} ran again"
    planted = {name: outcome for name, (outcome, _) in PLANTED.items()}
    for name, stage in after.items():
        assert stage["outcome"] == planted.get(name, "passed"), (name, stage)
    assert "No module named 'no_such_package'" in after["lacks a package"]["output"]
    report = json.loads(output.read_text())
    assert report["machine"]["versions"]["commit"] == commit
    assert report["tests"]["passed"] > 0 and report["tests"]["failure"] == 0
    assert {
        *("headline", "changed", "sizes", "peers", "bench of cuda", "bench of triton"),
        *("quantised of cuda", "coded of cuda", "quantised of triton", "coded of triton"),
        "quantised beside torchao",
    } == {record["stage"] for record in report["results"]}
    assert {"compile", "max-autotune"} <= {record["side"] for record in report["results"]}
    measured = {name.partition("-bfloat16")[0]: rows for name, rows in report["tables"].items()}
    assert measured.keys() == {"block-gelu", "block-swiglu", "epilogue"}
    assert "gelu_kernels, compiled" in [row["mode"] for row in measured["block-gelu"]]
    assert "Inductor, max-autotune" in [row["what"] for row in measured["epilogue"]]
