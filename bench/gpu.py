"""Builds for this machine's GPU, compares with the CPU, measures and tests, within a deadline.

It writes one JSON file, complete after every stage, and keeps the measurement in bench/results. A
second call resumes where the first stopped, unless the sources changed. It installs nothing and
needs no network.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click

from bench.gpu_report import COMMIT, Report
from bench.plan import PLANTED, Plan
from bench.runs import RESULTS, ROOT, keep
from bench.stages import PASSED, run_groups

SLACK = 3.0  # seconds, to kill the last processes and to write the report


def probe(device: str) -> dict:
    """In a child process, so that this one never opens the GPU."""
    command = [sys.executable, "-m", "bench.environment", device]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if result.returncode:
        raise click.ClickException(result.stderr.strip())
    return json.loads(result.stdout)


@click.command(help=__doc__)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The JSON file.  [default: build/gpu.json]",
)
@click.option(
    "--deadline",
    type=click.FloatRange(min=10),
    default=780,
    show_default=True,
    help="Seconds until all has ended.",
)
@click.option("--commit", help="The commit of the sources, where there is no repository.")
@click.option("--rehearse", is_flag=True, help="Every stage on the CPU, on little data.")
def main(output: Path | None, deadline: float, commit: str | None, rehearse: bool) -> None:
    end = time.monotonic() + deadline - SLACK
    # The file is complete at any moment, and stages end when this process does.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if commit:
        os.environ[COMMIT] = commit
    device = "cpu" if rehearse else "cuda"
    known = probe(device)
    folder = ROOT / "build" / ("rehearsal" if rehearse else "gpu")
    output = output or folder.with_suffix(".json")
    report = Report(folder / "report.json", output, known["machine"])
    plan = Plan(folder, device, known["architectures"])
    toolkit = [str(Path(known["toolkit"], "bin"))] if known["toolkit"] else []
    path = os.pathsep.join([os.environ["PATH"], *toolkit])
    run_groups(plan.groups(), end, path, report)
    keep(report.contents, folder / "results" if rehearse else RESULTS)

    planted = {name: outcome for name, (outcome, _) in PLANTED.items()}
    outcomes = {name: stage["outcome"] for name, stage in report.stages.items()}
    good = all(found == planted.get(name, PASSED) for name, found in outcomes.items())
    print(f"tests: {report.contents['tests']}")
    print(f"{'all as it should be' if good else 'FAILED'}: {output}")
    sys.exit(not good)


if __name__ == "__main__":
    main(prog_name="python -m bench.gpu")
