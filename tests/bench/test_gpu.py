"""``make gpu`` ends in time, reports every stage and leaves no process. The stages are made up."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bench import environment, gpu_report, junit, runs, stages
from bench.gpu_report import ROOT, Report
from bench.plan import CHANGED, HANG, Plan, name_of
from bench.stages import Group, Stage
from tests.bench.processes import MARK, wait_until_none
from tests.bits import is_later
from tests.calls import CORE_CALLS

# Leaves a process of its own session behind, as a daemon does.
DAEMON = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
"""


def python(name: str, program: str, **options) -> Stage:
    return Stage(name, [sys.executable, "-c", program], **options)


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Nothing that a test starts is left when it ends."""
    monkeypatch.setenv(MARK, str(tmp_path))
    yield str(tmp_path)
    monkeypatch.delenv(MARK)
    wait_until_none(str(tmp_path))


def begin(folder: Path) -> Report:
    return Report(folder / "state" / "report.json", folder / "report.json", {"device": "none"})


def run(groups: list[Group], folder: Path, seconds: float = 60) -> dict:
    report = begin(folder)
    stages.run_groups(groups, time.monotonic() + seconds, os.environ["PATH"], report)
    assert report.state.read_text() == report.output.read_text()
    return json.loads(report.output.read_text())


@pytest.mark.slow
def test_every_outcome(tmp_path: Path, mark: str) -> None:
    left = tmp_path / "left.json"
    write = f"open({str(left)!r}, 'w').write('[1, 2]')"
    group = [
        python("fails", "print('so it is'); raise SystemExit(3)"),
        python("passes", "import os; assert os.environ['A'] == 'b'", environment={"A": "b"}),
        python("is meant to fail", "raise SystemExit(9)", expected=(9,)),
        python("crashes", "import os; os.abort()"),
        python("leaves a daemon", DAEMON),
        Stage("is not there", ["no-such-program"]),
        python("leaves nothing", "", found=(tmp_path / "nothing").read_text),
        python("leaves numbers", write, found=lambda: json.loads(left.read_text())),
    ]
    hang = Group(1, [python("hangs", HANG), python("sleeps", "import time; time.sleep(3600)")], 2)
    report = run([hang, Group(9, group, 2)], tmp_path)
    assert report["machine"]["device"] == "none"
    found = report["stages"]
    assert {name: stage["outcome"] for name, stage in found.items()} == {
        "hangs": "out of time",
        "sleeps": "out of time",
        "fails": "failed",
        "passes": "passed",
        "is meant to fail": "passed",
        "crashes": "failed",
        "leaves a daemon": "passed",
        "is not there": "program not found",
        "leaves nothing": "passed",
        "leaves numbers": "passed",
    }
    assert found["fails"]["exit status"] == 3 and "so it is" in found["fails"]["output"]
    assert found["crashes"]["exit status"] == 128 + signal.SIGABRT
    assert "KeyboardInterrupt" in found["sleeps"]["output"]  # it had the time to say so
    assert "no-such-program" in found["is not there"]["output"]
    assert "nothing" in found["leaves nothing"]["unreadable"]
    assert found["leaves numbers"]["found"] == [1, 2]


@pytest.mark.slow
def test_what_all_hangs_ends_in_time(tmp_path: Path, mark: str) -> None:
    """Every group has its share, and a stage for which no time is left is not begun."""
    groups = [Group(2, [python(f"{i}.{j}", HANG) for j in range(2)]) for i in range(2)]
    start = time.monotonic()
    found = run(groups, tmp_path, seconds=6)["stages"]
    assert 4 < time.monotonic() - start < 7
    outcomes = {name: stage["outcome"] for name, stage in found.items()}
    hung, left = "out of time", "not run"
    assert outcomes == {"0.0": hung, "0.1": left, "1.0": hung, "1.1": left}


def test_nothing_runs_without_what_is_needed(tmp_path: Path) -> None:
    groups = [
        Group(1, [python("build", "raise SystemExit(1)")], needed=True),
        Group(1, [python("rest", "")]),
    ]
    found = run(groups, tmp_path)["stages"]
    assert [stage["outcome"] for stage in found.values()] == ["failed", "not run"]


@pytest.mark.slow
def test_a_second_call_goes_on(tmp_path: Path, mark: str) -> None:
    """With what did not run, what ran out of time, and what failed and is needed."""
    runs = tmp_path / "runs"

    def counted(name: str, program: str = "") -> Stage:
        return python(name, f"open({str(runs)!r}, 'a').write('{name} ')\n{program}")

    def groups(build: str, hang: str) -> list[Group]:
        return [
            Group(1, [counted("build", build)], needed=True),
            Group(1, [counted("fails", "raise SystemExit(1)"), counted("passes")]),
            Group(1, [counted("hangs", hang)]),
        ]

    run(groups("raise SystemExit(1)", ""), tmp_path)
    assert runs.read_text() == "build "
    run(groups("", "import time; time.sleep(60)"), tmp_path, seconds=6)
    assert runs.read_text() == "build build fails passes hangs "
    found = run(groups("", ""), tmp_path)["stages"]
    assert runs.read_text() == "build build fails passes hangs hangs "
    outcomes = [stage["outcome"] for stage in found.values()]
    assert outcomes == ["passed", "failed", "passed", "passed"]


def test_other_sources_begin_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the files that stages left."""
    run([Group(1, [python("build", "")])], tmp_path)
    assert begin(tmp_path).stages["build"]["outcome"] == "passed"
    monkeypatch.setattr("bench.gpu_report.digest_of_sources", lambda: "other")
    assert begin(tmp_path).stages == {}
    assert not (tmp_path / "state").exists()


def test_a_build_changes_no_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a second call would begin anew."""
    monkeypatch.setattr("bench.gpu_report.ROOT", tmp_path)
    package = tmp_path / "gelu_kernels"
    package.mkdir()
    before = gpu_report.digest_of_sources()
    (package / "torch2.13").mkdir()
    for name in ("libgelu_kernels_without_torch.so", "torch2.13/libgelu_kernels.so"):
        (package / name).touch()
    assert gpu_report.digest_of_sources() == before
    (package / "backend.py").touch()
    assert gpu_report.digest_of_sources() != before


def test_measurements_stand_in_one_list(tmp_path: Path) -> None:
    report = begin(tmp_path)
    for us in (3, 4):  # the second time in place of the first
        report.add("headline", {"outcome": "passed", "found": {"results": [{"us": us}], "a": 1}})
    report.add("more", {"outcome": "passed", "found": {"results": [{"us": 5}]}})
    for name in ("layer", "epilogue"):
        report.add(name, {"outcome": "passed", "found": {"tables": {name: [{"us": "6"}]}}})
    assert report.contents["results"] == [
        {"us": 4, "stage": "headline"},
        {"us": 5, "stage": "more"},
    ]
    assert report.stages["headline"]["found"] == {"a": 1}
    assert report.contents["tables"] == {"layer": [{"us": "6"}], "epilogue": [{"us": "6"}]}
    runs.keep({**report.contents, "machine": {"device": "none"}}, tmp_path / "kept")
    assert runs.read_tables(tmp_path / "kept")["layer"] == [{"us": "6"}]


@pytest.fixture
def killed_run(tmp_path: Path) -> list[str]:
    """A program with four stages; the last hangs."""
    program = tmp_path / "run.py"
    program.write_text(
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from bench.gpu_report import Report\n"
        "from bench.plan import HANG\n"
        "from bench.stages import Group, Stage, run_groups\n"
        "programs = {'a': '', 'b': 'raise SystemExit(1)', 'c': '', 'hangs': HANG}\n"
        "groups = [Group(1, [Stage(name, [sys.executable, '-c', program])])"
        " for name, program in programs.items()]\n"
        f"report = Report(Path({str(tmp_path)!r}, 'a', 'b'), Path({str(tmp_path)!r}, 'report'),"
        " {'device': 'none'})\n"
        "run_groups(groups, time.monotonic() + 3600, os.environ['PATH'], report)\n"
    )
    return [sys.executable, str(program)]


@pytest.mark.parametrize(
    ("finished", "sent"),
    [(0, signal.SIGTERM), (1, signal.SIGKILL), (2, signal.SIGTERM), (3, signal.SIGKILL)],
)
def test_killed_after_each_stage(
    tmp_path: Path, mark: str, killed_run: list[str], finished: int, sent: signal.Signals
) -> None:
    process = subprocess.Popen(killed_run, env={**os.environ, "PYTHONPATH": str(ROOT)})
    report = tmp_path / "report"

    def outcomes() -> list[str]:
        stages = json.loads(report.read_text())["stages"] if report.exists() else {}
        return [stage["outcome"] for stage in stages.values()]

    expected = ["passed", "failed", "passed", "not run"]
    while outcomes()[:finished] != expected[:finished] or not outcomes():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(sent)
    assert process.wait(10) == -sent
    wait_until_none(mark)
    found = outcomes()
    assert len(found) == 4 and found[:finished] == expected[:finished]


def test_the_plan_has_a_report_for_every_stage(tmp_path: Path) -> None:
    groups = Plan(tmp_path, "cuda", "9.0").groups()
    names = [stage.name for group in groups for stage in group.stages]
    assert len(set(names)) == len(names)
    files = {name_of(path) for path in (ROOT / "tests").rglob("test_*.py")}
    tested = {name.partition(" of ")[0] for name in names if "test_" in name}
    some = {"backends.test_cuda", "accuracy.test_rounding", "families.test_soi"}
    assert tested < files and some <= tested


def test_the_worst_case_of_the_plan_is_its_deadline(tmp_path: Path) -> None:
    """Every group has its share in seconds, though all before it take theirs."""
    groups = Plan(tmp_path, "cuda", "9.0").groups()
    ends = list(stages.ends(groups, 0, 780))
    shares = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
    assert shares == pytest.approx([group.share for group in groups])
    assert ends[-1] == pytest.approx(780)
    # What no GPU has measured is known in time, even if the build takes the most that it may.
    order = [group.stages[0].name for group in groups]
    assert ends[order.index("headline") - 1] < 780 / 2
    new = ["changed", "bench of triton", "sizes", "peers", "layer with gelu", "epilogue"]
    assert [name for name in order if name in new] == new
    assert order.index("epilogue") < order.index("memcheck")


def test_what_has_changed_is_compared_first() -> None:
    order = sorted(CORE_CALLS, key=lambda call: is_later(call, CHANGED))
    seen = [call.op.name if call.op.name in CHANGED else call.op.family for call in order]
    count = sum(name in CHANGED for name in seen)
    assert set(seen[:count]) == set(CHANGED)
    assert len(set(order)) == len(CORE_CALLS)


def test_junit(tmp_path: Path) -> None:
    (tmp_path / "test_all.py").write_text(
        "import pytest\n"
        "def test_a(record_property): record_property('largest error', '3 ULP')\n"
        "def test_b(): assert 1 == 2\n"
        "def test_c(): pytest.skip('no reason')\n"
        "def test_d(no_such_fixture): pass\n"
    )
    (tmp_path / "test_none.py").write_text("import pytest\npytest.importorskip('nothing')\n")
    written = tmp_path / "all.xml"
    pytest_run = [sys.executable, "-m", "pytest", "-q", f"--junit-xml={written}"]
    subprocess.run(pytest_run, cwd=tmp_path, capture_output=True)
    found = junit.read(written)
    assert [found[k] for k in ("passed", "failure", "error", "skipped")] == [1, 1, 1, 2]
    assert found["failures"][0]["test"] == "test_all::test_b"
    assert "assert 1 == 2" in found["failures"][0]["message"]
    missing = "could not import 'nothing': No module named 'nothing'"
    assert found["skipped because"] == {"no reason": 1, missing: 1}
    assert found["largest errors"] == {"test_all::test_a": "3 ULP"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_without_a_gpu() -> None:
    command = [sys.executable, "-m", "bench.gpu"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr == "Error: make gpu needs an NVIDIA GPU, and torch sees none here\n"


def test_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given, else of the repository, else as `git archive` wrote it."""
    monkeypatch.delenv(environment.COMMIT, raising=False)
    archived = tmp_path / ".git_archival.txt"
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr(environment, "ARCHIVED", archived)
    assert environment.commit() == "unknown"
    archived.write_text("node: $Format:%H$\n")  # as it is in a checkout
    assert environment.commit() == "unknown"
    archived.write_text(f"node: {'1a' * 20}\n")
    assert environment.commit() == "1a" * 20
    monkeypatch.setenv(environment.COMMIT, "given")
    assert environment.commit() == "given"
