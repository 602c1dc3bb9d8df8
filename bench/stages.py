"""Commands with a limit of time, and what they left behind."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 15  # seconds to end in, after an interrupt
# Characters of an output that are kept, of a stage that failed and of one that passed.
TAIL, END = 4000, 300


@dataclass
class Stage:
    name: str
    limit: int  # seconds
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    expected: tuple[int, ...] = (0,)  # exit status
    found: Callable[[], object] = lambda: None  # reads what it left


def search_path() -> str:
    """The CUDA toolkit's tools may lie where only torch looks."""
    from torch.utils.cpp_extension import CUDA_HOME  # says so where it finds no GPU

    toolkit = [str(Path(CUDA_HOME) / "bin")] if CUDA_HOME else []
    return os.pathsep.join([os.environ["PATH"], *toolkit])


def ended_in_time(process: subprocess.Popen, limit: float) -> bool:
    """If not it is interrupted, as pytest then still reports, and in the end killed."""
    for patience, remedy in ((limit, signal.SIGINT), (PATIENCE, signal.SIGKILL)):
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            return remedy == signal.SIGINT
        with suppress(ProcessLookupError):
            os.killpg(process.pid, remedy)
    with suppress(subprocess.TimeoutExpired):
        process.wait(PATIENCE)
    return False


def run(stage: Stage) -> dict[str, object]:
    start = time.monotonic()
    environment = {
        **os.environ,
        "PATH": search_path(),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        **stage.environment,
    }
    program = shutil.which(stage.command[0], path=environment["PATH"]) or stage.command[0]
    in_time, status = True, None
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        try:
            process = subprocess.Popen(
                [program, *stage.command[1:]],
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            output.write(str(error))
        else:
            in_time = ended_in_time(process, stage.limit)
            status = process.poll()
        output.seek(0)
        text = output.read()
    passed = in_time and status in stage.expected
    text = text[-END if passed else -TAIL :]
    result = {
        "passed": passed,
        "in time": in_time,
        "exit status": status,
        "seconds": round(time.monotonic() - start, 1),
        "output": text,
    }
    try:
        result["found"] = stage.found()
    except (OSError, ValueError, ElementTree.ParseError) as error:
        result["unreadable"] = str(error)
    if not passed:
        print(text, file=sys.stderr)
    state = "passed" if passed else "FAILED"
    print(f"{stage.name:24} {state} in {result['seconds']:.0f} s", flush=True)
    return result


def read_junit(path: Path) -> dict[str, object]:
    """Counts, failures, the reasons of skipping, the largest errors, and what took longest."""
    counts = dict.fromkeys(("passed", "failure", "error", "skipped"), 0)
    failures, skipped, properties, seconds = [], {}, {}, {}
    for test in ElementTree.parse(path).iter("testcase"):
        name = f"{test.get('classname')}::{test.get('name')}"
        seconds[name] = float(test.get("time", 0))
        outcome = next((child for child in test if child.tag in counts), None)
        counts["passed" if outcome is None else outcome.tag] += 1
        if outcome is not None and outcome.tag == "skipped":
            reason = outcome.get("message", "")
            skipped[reason] = skipped.get(reason, 0) + 1
        elif outcome is not None:
            failures.append({"test": name, "message": (outcome.text or "")[-TAIL:]})
        for recorded in test.iter("property"):
            properties[name] = recorded.get("value")
    slowest = sorted(seconds, key=seconds.get, reverse=True)[:10]
    return {
        **counts,
        "failures": failures,
        "skipped because": skipped,
        "slowest": {name: seconds[name] for name in slowest},
        "largest errors": properties,
    }
