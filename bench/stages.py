"""Commands in groups under one deadline, and a report that is complete after each of them."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from xml.etree import ElementTree

from bench import guard
from bench.gpu_report import Report
from bench.runs import ROOT

# Characters kept of the output of a stage that failed, and of one that passed.
TAIL, END = 4000, 300
SHORTEST = 1.0  # seconds; with less time left, no stage starts
SECONDS = "{seconds}"  # in a command: its time, less some to start and to end

PASSED, FAILED, OUT_OF_TIME, NOT_FOUND, NOT_RUN = (
    "passed",
    "failed",
    "out of time",
    "program not found",
    "not run",
)
REASONS = {guard.OUT_OF_TIME: OUT_OF_TIME, guard.NOT_FOUND: NOT_FOUND}


@dataclass(frozen=True)
class Stage:
    name: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    expected: tuple[int, ...] = (0,)  # exit statuses
    found: Callable[[], object] = lambda: None  # reads what the command wrote


@dataclass(frozen=True)
class Group:
    """Stages that run side by side, `at_once` of them, and end before the next group begins."""

    share: float  # of the time, relative to the shares of the other groups
    stages: list[Stage]
    at_once: int = 1
    needed: bool = False  # by every later group


def run(stage: Stage, seconds: float, path: str) -> dict[str, object]:
    """The outcome, and the end of the output. `path` is where programs are searched."""
    start = time.monotonic()
    program = shutil.which(stage.command[0], path=path) or stage.command[0]
    own = f"{seconds - 2 * guard.patience(seconds):.1f}"
    arguments = [own if word == SECONDS else word for word in stage.command[1:]]
    watched = [sys.executable, guard.__file__, str(seconds), program, *arguments]
    python_path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": python_path, **stage.environment}
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        # The guard's standard input closes when this process dies.
        process = subprocess.Popen(
            watched,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        status = process.wait()
        process.stdin.close()
        output.seek(0)
        text = output.read()
    passed = status in stage.expected
    result = {
        "outcome": PASSED if passed else REASONS.get(status, FAILED),
        "exit status": status,
        "seconds": round(time.monotonic() - start, 1),
        "output": text[-END if passed else -TAIL :],
    }
    try:
        result["found"] = stage.found()
    except (OSError, ValueError, ElementTree.ParseError) as error:
        result["unreadable"] = str(error)
    return result


def show(name: str, result: dict[str, object]) -> None:
    if result["outcome"] != PASSED:
        print(result["output"], file=sys.stderr)
    print(f"{name:32} {result['outcome']} in {result['seconds']:.0f} s", flush=True)


def ends(groups: list[Group], start: float, end: float) -> Iterator[float]:
    """When each group has to end. Later groups share the time that one leaves."""
    passed, total = 0.0, sum(group.share for group in groups)
    for group in groups:
        passed += group.share
        yield start + (end - start) * passed / total


def missing(groups: list[Group], stages: dict[str, dict]) -> Iterator[Group]:
    """The groups, without stages that already ended by themselves. A needed stage that failed runs
    again, as the cause may have been outside."""

    def has_ended(group: Group, stage: Stage) -> bool:
        outcome = stages[stage.name]["outcome"]
        return outcome == PASSED or (outcome == FAILED and not group.needed)

    for group in groups:
        left = [stage for stage in group.stages if not has_ended(group, stage)]
        if left:
            yield replace(group, stages=left)


def run_group(group: Group, end: float, path: str, report: Report) -> None:
    def run_in_time(stage: Stage) -> dict[str, object] | None:
        seconds = end - time.monotonic()
        return run(stage, seconds, path) if seconds >= SHORTEST else None

    with ThreadPoolExecutor(group.at_once) as pool:
        names: dict[Future, str] = {pool.submit(run_in_time, s): s.name for s in group.stages}
        for future in as_completed(names):
            if result := future.result():
                report.add(names[future], result)
                show(names[future], result)


def run_groups(groups: list[Group], end: float, path: str, report: Report) -> None:
    """`end` is the deadline, on the clock of time.monotonic."""
    for group in groups:
        for stage in group.stages:
            report.stages.setdefault(stage.name, {"outcome": NOT_RUN})
    report.write()
    left = list(missing(groups, report.stages))
    for group, group_end in zip(left, ends(left, time.monotonic(), end), strict=True):
        names = [stage.name for stage in group.stages]
        print(f"{group_end - time.monotonic():.0f} s at most: {', '.join(names)}", flush=True)
        run_group(group, group_end, path, report)
        if group.needed and any(report.stages[name]["outcome"] != PASSED for name in names):
            print(f"nothing more can run without {', '.join(names)}", file=sys.stderr)
            break
