"""``make gpu``: builds for this machine's GPU, tests and measures there, and writes one JSON file.

A stage that fails is recorded, and the others still run. The stages of a group run together, as
what they need most is a CPU; the benchmark runs alone.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from functools import partial
from pathlib import Path

import torch

from bench.stages import ROOT, Stage, read_junit, run

WRITE_BUILD_INFO = """
import json, sys
from gelu_kernels import _C
with open(sys.argv[1], "w") as file:
    json.dump(dict(_C.build_info()), file)
"""
# Where many processes run at once.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def read_json(path: Path) -> object:
    return json.loads(path.read_text())


def architectures() -> str:
    found = {torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())}
    return ";".join(f"{major}.{minor}" for major, minor in sorted(found))


def python(name: str, limit: int, *arguments: str, writes: Path, **options: object) -> Stage:
    """A stage that writes a file of JSON."""
    command = [sys.executable, *arguments, str(writes)]
    return Stage(name, limit, command, found=partial(read_json, writes), **options)


def sanitizer(name: str, tool: str, *arguments: str, expected: int = 0) -> Stage:
    # torch makes calls that fail and does without; they are not reported.
    options = ["--tool", tool, "--error-exitcode", "9", "--report-api-errors", "no"]
    command = ["compute-sanitizer", *options, sys.executable, "tests/sanitize.py", *arguments]
    environment = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", **ONE_THREAD}
    return Stage(name, 240, command, environment, (expected,))


def pytest(file: Path, folder: Path) -> Stage:
    """A process for each file: a kernel that faults fails whatever follows in its process."""
    junit = folder / f"{file.stem}.xml"
    command = [
        *(sys.executable, "-m", "pytest", "-q", "--tb=short", "--maxfail=100"),
        # The versions of all else are those of the machine, and their warnings no failures.
        *("-W", "default", "-p", "no:cacheprovider"),
        # What runs on a CPU runs where there is no GPU as well.
        *("-m", "gpu", f"--junit-xml={junit}", str(file.relative_to(ROOT))),
    ]
    nothing_selected = 5
    expected = (0, nothing_selected)
    return Stage(file.stem, 240, command, ONE_THREAD, expected, partial(read_junit, junit))


def plan(folder: Path) -> list[list[Stage]]:
    """The groups of stages; what they write goes to the folder. Under nine minutes in all."""
    build = [sys.executable, "setup.py", "build_ext", "--inplace"]
    numbers = [
        python(
            f"numbers of {backend}",
            *(240, "tests/report.py", "--device", backend, "--json"),
            writes=folder / f"{backend}.json",
            environment=ONE_THREAD,
        )
        for backend in ("cuda", "triton")
    ]
    return [
        [Stage("build", 150, build, {"TORCH_CUDA_ARCH_LIST": architectures()})],
        [python("load", 20, "-c", WRITE_BUILD_INFO, writes=folder / "build.json")],
        [
            *numbers,
            sanitizer("memcheck", "memcheck"),
            sanitizer("racecheck", "racecheck"),
            sanitizer("memcheck of an overrun", "memcheck", "--overrun", expected=9),
            *(pytest(file, folder) for file in sorted((ROOT / "tests").glob("test_*.py"))),
        ],
        [python("bandwidth", 120, "-m", "bench.bandwidth", "--json", writes=folder / "times.json")],
    ]


def answer(*command: str) -> str:
    """What it prints; nothing if it fails."""
    try:
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return result.stdout.strip()


def nvidia_smi(*names: str) -> dict[str, str]:
    device = f"--id=GPU-{torch.cuda.get_device_properties(0).uuid}"
    values = answer("nvidia-smi", device, f"--query-gpu={','.join(names)}", "--format=csv,noheader")
    return dict(zip(names, values.split(", "), strict=True)) if values else {}


def machine() -> dict[str, object]:
    device = torch.cuda.get_device_properties(0)
    return {
        "device": device.name,
        "compute capability": f"{device.major}.{device.minor}",
        "multiprocessors": device.multi_processor_count,
        "memory": device.total_memory,
        "L2": device.L2_cache_size,
        "nvidia-smi": nvidia_smi(
            "driver_version", "clocks.max.sm", "clocks.max.mem", "power.limit"
        ),
        "CPU cores": os.cpu_count(),
        "torch": torch.__version__,
        "CUDA of torch": torch.version.cuda,
        "python": platform.python_version(),
        "commit": answer("git", "describe", "--always", "--dirty", "--abbrev=40"),
    }


def default_output(device: str) -> Path:
    slug = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    return ROOT / "bench" / "results" / f"{slug}-{date.today().isoformat()}.json"


def totals(stages: dict[str, dict]) -> dict[str, int]:
    tests = [stage.get("found") for name, stage in stages.items() if name.startswith("test_")]
    return {
        outcome: sum(counts[outcome] for counts in tests if counts)
        for outcome in ("passed", "failure", "error", "skipped")
    }


def run_groups(groups: list[list[Stage]], report: dict[str, object], output: Path) -> bool:
    """Whether all passed."""
    output.parent.mkdir(parents=True, exist_ok=True)
    stages = report["stages"] = {}
    for group in groups:
        limits = ", ".join(f"{stage.name} {stage.limit}" for stage in group)
        print(f"next, in seconds at most: {limits}", flush=True)
        with ThreadPoolExecutor(min(len(group), os.cpu_count() or 1)) as pool:
            results = pool.map(run, group)
            stages |= {stage.name: result for stage, result in zip(group, results, strict=True)}
        report["tests"] = totals(stages)
        # After every group: a run that is cut short leaves what it has.
        output.write_text(json.dumps(report, indent=1) + "\n")
    return all(result["passed"] for result in stages.values())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.add_argument(
        "--output", type=Path, help="if not bench/results/<device>-<date>.json", metavar="FILE"
    )
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("make gpu needs an NVIDIA GPU, and torch sees none here")
    report = {"date": date.today().isoformat(), **machine()}
    output = arguments.output or default_output(report["device"])
    with tempfile.TemporaryDirectory() as folder:
        passed = run_groups(plan(Path(folder)), report, output)
    passed = passed and report["tests"]["passed"] > 0
    report["clocks after the benchmark"] = nvidia_smi("clocks.sm", "clocks.mem", "temperature.gpu")
    output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"tests: {report['tests']}")
    print(f"{'all passed' if passed else 'FAILED'}: {output}")
    sys.exit(not passed)


if __name__ == "__main__":
    main()
