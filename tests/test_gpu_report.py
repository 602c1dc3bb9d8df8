"""``make gpu`` reports every stage, whatever happens in it. Here the stages are made up."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bench import gpu, stages
from bench.stages import ROOT, Stage


def python(name: str, program: str, limit: int = 60, **options) -> Stage:
    return Stage(name, limit, [sys.executable, "-c", program], **options)


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    monkeypatch.setattr(stages, "PATIENCE", 2)
    left = tmp_path / "left.json"
    stubborn = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(60)"
    groups = [
        [python("fails", "print('so it is'); raise SystemExit(3)")],
        [
            python("passes", "import os; assert os.environ['A'] == 'b'", environment={"A": "b"}),
            python("is meant to fail", "raise SystemExit(9)", expected=(9,)),
            python("never ends", "import time; time.sleep(60)", limit=1),
            python("will not end", stubborn, limit=1),
            Stage("is not there", 60, ["no-such-program"]),
            python("leaves nothing", "", found=left.read_text),
        ],
        [
            python(
                "leaves numbers",
                f"open({str(left)!r}, 'w').write('[1, 2]')",
                found=lambda: gpu.read_json(left),
            )
        ],
    ]
    output = tmp_path / "folder" / "report.json"
    assert not gpu.run_groups(groups, {"device": "none"}, output)
    return json.loads(output.read_text())


def test_stages(report: dict) -> None:
    assert report["device"] == "none"
    found = report["stages"]
    passed = [name for name, result in found.items() if result["passed"]]
    assert passed == ["passes", "is meant to fail", "leaves nothing", "leaves numbers"]
    assert found["fails"]["exit status"] == 3 and "so it is" in found["fails"]["output"]
    for name in ("never ends", "will not end"):
        assert not found[name]["in time"] and 1 <= found[name]["seconds"] < 30
    assert "no-such-program" in found["is not there"]["output"]
    assert "left.json" in found["leaves nothing"]["unreadable"]
    assert found["leaves numbers"]["found"] == [1, 2]


def test_junit(tmp_path: Path) -> None:
    (tmp_path / "test_all.py").write_text(
        "import pytest\n"
        "def test_a(record_property): record_property('largest error', '3 ULP')\n"
        "def test_b(): assert 1 == 2\n"
        "def test_c(): pytest.skip('no reason')\n"
        "def test_d(no_such_fixture): pass\n"
    )
    junit = tmp_path / "all.xml"
    pytest_run = [sys.executable, "-m", "pytest", "-q", f"--junit-xml={junit}", "test_all.py"]
    subprocess.run(pytest_run, cwd=tmp_path, capture_output=True)
    found = stages.read_junit(junit)
    assert [found[k] for k in ("passed", "failure", "error", "skipped")] == [1, 1, 1, 1]
    assert found["failures"][0]["test"] == "test_all::test_b"
    assert "assert 1 == 2" in found["failures"][0]["message"]
    assert found["skipped because"] == {"no reason": 1}
    assert found["largest errors"] == {"test_all::test_a": "3 ULP"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_without_a_gpu() -> None:
    command = [sys.executable, "-m", "bench.gpu"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr == "make gpu needs an NVIDIA GPU, and torch sees none here\n"
