"""``make gpu``: builds for this machine's GPU, tests and measures there, and writes one JSON file.

A stage that fails is recorded, and the others still run. The stages of a group run together, as
what they need most is a CPU; the benchmark runs alone.
"""

import argparse
import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import torch

from bench import environment
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


def read_json_in(folder: Path) -> object:
    (file,) = folder.glob("*.json")
    return read_json(file)


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
    return Stage(name, 200, command, environment, (expected,))


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
    return Stage(file.stem, 200, command, ONE_THREAD, expected, partial(read_junit, junit))


def bench(backend: str, limit: int, sizes: tuple[str, ...], folder: Path) -> Stage:
    """Without torch.compile: that would take the time of all else."""
    dtypes = ("bfloat16", "float16", "float32")
    command = [
        *(sys.executable, "-m", "bench", "--device", "cuda", "--peer", "none"),
        *(word for size in sizes for word in ("--size", size)),
        *(word for dtype in dtypes for word in ("--dtype", dtype)),
        *("--pass", "forward", "--pass", "backward", "--output", str(folder / backend)),
    ]
    return Stage(
        f"bench of {backend}",
        limit,
        command,
        {"GELU_KERNELS_BACKEND": backend},
        found=partial(read_json_in, folder / backend),
    )


def plan(folder: Path) -> list[list[Stage]]:
    """The groups of stages; what they write goes to the folder. Under nine minutes in all."""
    build = [sys.executable, "setup.py", "build_ext", "--inplace"]
    numbers = [
        python(
            f"numbers of {backend}",
            *(200, "tests/report.py", "--device", backend, "--json"),
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
        [bench("cuda", 110, ("2^12", "64MiB", "256MiB", "1GiB"), folder)],
        [bench("triton", 60, ("256MiB",), folder)],
    ]


def totals(stages: dict[str, dict]) -> dict[str, int]:
    tests = [stage.get("found") for name, stage in stages.items() if name.startswith("test_")]
    return {
        outcome: sum(counts[outcome] for counts in tests if counts)
        for outcome in ("passed", "failure", "error", "skipped")
    }


def timings(stages: dict[str, dict]) -> list[dict]:
    """The records of both backends, where `python -m bench` puts its own."""
    found = (stage.get("found") for name, stage in stages.items() if name.startswith("bench of"))
    return [record for report in found if report for record in report["results"]]


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
    report = {"machine": (machine := environment.describe("cuda"))}
    results = ROOT / "bench" / "results"
    output = arguments.output or results / f"{environment.slug(machine)}.json"
    with tempfile.TemporaryDirectory() as folder:
        passed = run_groups(plan(Path(folder)), report, output)
    passed = passed and report["tests"]["passed"] > 0
    report["results"] = timings(report["stages"])
    report["clocks after the benchmark"] = environment.nvidia_smi(
        "clocks.sm", "clocks.mem", "temperature.gpu"
    )
    output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"tests: {report['tests']}")
    print(f"{'all passed' if passed else 'FAILED'}: {output}")
    sys.exit(not passed)


if __name__ == "__main__":
    main()
