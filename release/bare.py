"""``python -m release.bare PACKAGE [PYTHON:TORCH...]``: tests a wheel or an sdist in new
environments, one for each pair.

Runs ``python -m gelu_kernels``, the examples of README.md, 100 training steps and the tests of
operators and contracts that need no compiler, and times the import. The search path has only the
environment's programs, so there is no compiler; for an sdist it has the machine's programs too.
Prints every command and its output. release/wheel.json keeps the results of a wheel, and
``python -m docs.tables`` prints them.
"""

import json
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import click

from bench import junit
from bench.environment import commit
from bench.gpu_report import COUNTED
from release.environments import PAIRS, ROOT, Environment, create, interpreter

RECORD = ROOT / "release" / "wheel.json"
# The build requirements of pyproject.toml, without torch: the installed one stays.
TO_BUILD = ("setuptools>=70.1", "cmake>=3.25", "ninja")
TO_TEST = ("click", "hypothesis", "mpmath", "numpy", "pytest", "pytest-xdist", "scipy")
TESTED = ("tests/families", "tests/contracts")
# What compiles C++ is left out: PTX on the CPU, Inductor, a GPU's stand-in.
CHOSEN = "not (ptx or test_compile or test_the_host_draws or test_the_operator_draws)"
NEEDED = ("tests", "machine_code", "release", "pyproject.toml")  # by these tests
EXAMPLES = """
import doctest
result = doctest.testfile("README.md", module_relative=False)
print(f"README.md: {result.attempted} examples, {result.failed} failed")
raise SystemExit(result.failed)
"""
TRAINING = """
import torch
from gelu_kernels import nn
torch.manual_seed(0)
network = torch.nn.Sequential(nn.LinearGELU(16, 64), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
x = torch.randn(256, 16)
y = x.square().mean(1, keepdim=True)
losses = []
for step in range(100):
    loss = torch.nn.functional.mse_loss(network(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f"100 steps: loss {losses[0]:.4f} to {losses[-1]:.4f}")
raise SystemExit(not losses[-1] < 0.1 * losses[0])
"""
IMPORT = """
from time import perf_counter
times = [perf_counter()]
import torch
times.append(perf_counter())
import gelu_kernels
times.append(perf_counter())
print("import: torch {:.0f} ms, gelu_kernels {:.0f} ms".format(
    *(1e3 * (after - before) for before, after in zip(times, times[1:]))))
"""


@dataclass(frozen=True)
class Bare:
    environment: Environment
    folder: Path
    machine: bool  # whether it finds the machine's programs

    def run(self, *command: str, passes: bool = True) -> str:
        shown = shlex.join(["..." if "\n" in word else word for word in command])
        print(f"$ {shown}", flush=True)
        # By env, which searches the new path: subprocess would search this process's own.
        result = subprocess.run(
            ["/usr/bin/env", *command],
            cwd=self.folder,
            env=self.environment.variables(machine=self.machine),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        print(result.stdout, end="", flush=True)
        if passes and result.returncode:
            raise click.ClickException(f"exit status {result.returncode}: {shown}")
        return result.stdout

    def install(self, *packages: str) -> None:
        self.run("pip", "--disable-pip-version-check", "install", "--quiet", *packages)

    def import_times(self) -> tuple[float, float]:
        """Milliseconds for torch, and for gelu_kernels after it: medians of five. An import before
        them compiles the modules."""
        said = [self.run("python", "-c", IMPORT) for _ in range(6)][1:]
        times = [map(float, re.findall(r"(\d+) ms", line)) for line in said]
        torch, ours = map(median, zip(*times, strict=True))
        return torch, ours

    def tests(self) -> dict[str, object]:
        pins = [f"--constraint={path}" for path in ROOT.glob("requirements*.txt")]
        self.install(*pins, *TO_TEST)
        for name in NEEDED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, self.folder / name)
        report = self.folder / "tests.xml"
        options = "--quiet", "--numprocesses=auto", "--dist=loadfile", f"--junit-xml={report}"
        self.run(
            "python",
            "-m",
            "pytest",
            *options,
            "-m",
            "not slow",
            "-k",
            CHOSEN,
            *TESTED,
            passes=False,
        )
        found = junit.read(report)
        failures = [failed["test"] for failed in found["failures"]]
        return {name: found[name] for name in COUNTED} | {"failures": failures}


def try_out(package: Path, pair: str) -> dict[str, object]:
    python, torch = pair.split(":")
    is_wheel = package.suffix == ".whl"
    with TemporaryDirectory() as folder:
        environment = create(Path(folder) / "environment", interpreter(pair))
        source = Path(folder) / "source"
        source.mkdir()
        shutil.copy(ROOT / "README.md", source)
        bare = Bare(environment, source, machine=not is_wheel)
        bare.install(f"torch=={torch}", *(() if is_wheel else TO_BUILD))
        bare.install(*(() if is_wheel else ("--no-build-isolation",)), str(package.resolve()))
        facts = bare.run("python", "-m", "gelu_kernels")
        examples = bare.run("python", "-c", EXAMPLES)
        training = bare.run("python", "-c", TRAINING)
        of_torch, ours = bare.import_times()
        return {
            "python": python,
            "torch": re.search(r"^  torch +(\S+)", facts, re.MULTILINE)[1],
            "date": date.today().isoformat(),
            "commit": commit(),
            "MB": round(package.stat().st_size / 1e6, 1),
            "examples": int(re.search(r"README.md: (\d+)", examples)[1]),
            "loss": re.search(r"loss (.+)", training)[1],
            "ms": {"torch": of_torch, "gelu_kernels": ours},
            **bare.tests(),
        }


def pair_of(record: dict) -> tuple[str, str]:
    return record["torch"], record["python"]


def load() -> list[dict]:
    return json.loads(RECORD.read_text()) if RECORD.exists() else []


@click.command(help=__doc__)
@click.argument("package", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("pairs", nargs=-1)
def main(package: Path, pairs: tuple[str, ...]) -> None:
    for pair in pairs or PAIRS:
        print(f"Python and torch {pair}")
        tried = try_out(package, pair)
        if package.suffix == ".whl":
            others = [record for record in load() if pair_of(record) != pair_of(tried)]
            records = sorted([*others, tried], key=pair_of)
            RECORD.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main(prog_name="python -m release.bare")
