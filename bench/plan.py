"""The stages of `make gpu`, their order, and each group's share of the time."""

import os
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench import junit
from bench.runs import ROOT, Run, load, load_all, read_csv, read_tables
from bench.stages import FAILED, NOT_FOUND, OUT_OF_TIME, SECONDS, Group, Stage

# Where many processes run at once.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
LOAD = """
import json, os, sys
from gelu_kernels import _C, __file__, __version__
assert __file__.startswith(os.getcwd()), f"not the package of this tree: {__file__}"
with open(sys.argv[1], "w") as file:
    json.dump({"gelu_kernels": __version__, "build": dict(_C.build_info())}, file)
"""
# Has a child process and ignores interrupts.
HANG = """
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
subprocess.run([sys.executable, "-c", "import time; time.sleep(3600)"])
"""
# Stages of a rehearsal that fail, each in its own way: the others must run all the same.
PLANTED = {
    "hangs": (OUT_OF_TIME, [sys.executable, "-c", HANG]),
    "crashes": (FAILED, [sys.executable, "-c", "import os; os.abort()"]),
    "lacks a package": (FAILED, [sys.executable, "-c", "import no_such_package"]),
    "lacks a program": (NOT_FOUND, ["no-such-program"]),
}
# Families and operators whose kernels have changed since a GPU ran them; of the GLUs, those with a
# weight. It stands here, as presets.py needs the built extension.
CHANGED = ("dropout", "cdf", "glu", "soi", "coded", "gate_backward_bias")
# Recipes of quantised results: each scaling, in both directions.
QUANTISED = ("RowWise both", "BlockWise1x128 both rceil", "both")
# Calls of torch that fail harmlessly are not reported.
SANITIZER = ("compute-sanitizer", "--error-exitcode", "9", "--report-api-errors", "no", "--tool")


def test_files() -> list[Path]:
    """The files whose tests may take a device. Importing another needlessly takes 15 seconds."""
    takes_device = r"def \w+\([^)]*\bdevice\b|as device:|mark\.gpu"
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [file for file in files if re.search(takes_device, file.read_text())]


def name_of(file: Path) -> str:
    """As pytest names its module: backends.test_cuda."""
    return ".".join(file.relative_to(ROOT / "tests").with_suffix("").parts)


def load_run(folder: Path) -> Run:
    """Of a benchmark that had the folder to itself."""
    (run,) = load_all(folder)
    return run


def load_records(folder: Path) -> dict[str, list[dict]]:
    return {"results": [row for path in folder.glob("*.csv") for row in read_csv(path)]}


def load_tables(folder: Path) -> dict[str, dict]:
    return {"tables": read_tables(folder)}


def options(name: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (name, value)]


@dataclass(frozen=True)
class Plan:
    folder: Path  # of the files that stages write
    device: str  # torch's; "cpu" for a rehearsal of every stage, on little data
    architectures: str = ""

    @property
    def rehearsal(self) -> bool:
        return self.device == "cpu"

    def kernels(self, backend: str) -> str:
        """The device of the tests."""
        return "cpu" if self.rehearsal else backend

    def file(self, name: str, suffix: str) -> Path:
        return self.folder / (name.replace(" ", "-") + suffix)

    def build(self) -> Stage:
        command = [sys.executable, "setup.py", "build_ext", "--inplace"]
        # Without the GPU's kernels and without optimisation it takes a fifth of the time.
        rehearsed = {"FORCE_ONLY_CPU": "1", "DEBUG": "1"}
        wanted = {"TORCH_CUDA_ARCH_LIST": self.architectures}
        return Stage("build", command, rehearsed if self.rehearsal else wanted)

    def writer(self, name: str, *arguments: str, **options) -> Stage:
        """Its last argument is the JSON file that it writes."""
        file = self.file(name, ".json")
        command = [sys.executable, *arguments, str(file)]
        return Stage(name, command, found=partial(load, file), **options)

    def equality(self, backend: str) -> Stage:
        few = ("--dtype", "bfloat16") if self.rehearsal else ()
        arguments = ("-m", "tests.bits", "--device", self.kernels(backend), *few)
        arguments += (*options("--first", CHANGED), "--json")
        return self.writer(f"equality of {backend}", *arguments)

    def measurement(
        self,
        name: str,
        module: str,
        *arguments: str,
        few: tuple[str, ...] = (),
        backend: str = "cuda",
        read: Callable[[Path], object],
    ) -> Stage:
        """It stops by itself when its time is up. `few` are the options of a rehearsal."""
        output = self.file(name, "")
        command = [
            *(sys.executable, "-m", module, "--device", self.device, "--deadline", SECONDS),
            *(*arguments, *(few if self.rehearsal else ()), "--output", str(output)),
        ]
        chosen = {} if self.rehearsal else {"GELU_KERNELS_BACKEND": backend}
        return Stage(name, command, chosen, found=partial(read, output))

    def bench(self, name: str, preset: str, *few: str, backend: str = "cuda") -> Stage:
        few = ("--size", "2^10", "--dtype", "bfloat16", *few)
        options = {"few": few, "backend": backend, "read": load_run}
        return self.measurement(name, "bench", "--preset", preset, **options)

    @property
    def whole_blocks(self) -> tuple[str, ...]:
        """A size whose rows are blocks of 128 numbers."""
        return "--dtype", "bfloat16", "--size", "2^14" if self.rehearsal else "256MiB"

    def eight_bits(self, backend: str, *recipes: str) -> list[Stage]:
        options = {"backend": backend, "read": load_records}
        quantized = ("bench.quantized", "--no-compile", *recipes, *self.whole_blocks)
        coded = ("bench.coded", "--gate", "normal", *self.whole_blocks)
        return [
            self.measurement(f"quantised of {backend}", *quantized, **options),
            self.measurement(f"coded of {backend}", *coded, **options),
        ]

    def torchao(self) -> Stage:
        cell = ("--pass", "gate forward", "--recipe", "BlockWise1x128", *self.whole_blocks)
        module = "bench.quantized", "--no-compile", *cell
        return self.measurement("quantised beside torchao", *module, read=load_records)

    def layer(self, mlp: str) -> Stage:
        """In training."""
        module = "bench.block", "--mlp", mlp, "--dtype", "bfloat16", "--layers", "1", "--compiled"
        size = ("--features", "4096", "--batch", "8", "--length", "1024", "--seconds", "0.3")
        few = ("--features", "64", "--batch", "2", "--length", "16", "--seconds", "0.01")
        if mlp == "swiglu":  # compiling one says enough
            few += ("--no-compiled",)
        return self.measurement(f"layer with {mlp}", *module, *size, few=few, read=load_tables)

    def epilogue(self) -> Stage:
        few = ("--shape", "64x32x96", "--seconds", "0.01")
        module = "bench.epilogue", "--compiled"
        return self.measurement("epilogue", *module, few=few, read=load_tables)

    def pytest(self, name: str, files: list[Path], *selection: str) -> Stage:
        file = self.file(name, ".xml")
        command = [
            *(sys.executable, "-m", "pytest", "-q", "--tb=short", "--maxfail=100"),
            # Warnings of the machine's versions of packages are no failures.
            *("-W", "default", "-p", "no:cacheprovider", *selection),
            # xunit1 has properties, in which tests leave their largest errors.
            *(f"--junit-xml={file}", "-o", "junit_family=xunit1"),
            *(str(file.relative_to(ROOT)) for file in files),
        ]
        nothing_selected = 5
        return Stage(name, command, ONE_THREAD, (0, nothing_selected), partial(junit.read, file))

    def tests(self, backend: str, selection: str) -> list[Stage]:
        """A process for each file: a kernel that faults fails every later test of its process."""
        if self.rehearsal:
            # A whole range of float32 takes seconds.
            few = ("-p", "bench.junit", "-m", "not slow", "-k", "cpu and not whole_range")
            files = test_files() if backend == "cuda" else test_files()[:2]
            return [self.pytest(f"tests of {backend}", files, *few)]
        return [
            self.pytest(f"{name_of(file)} of {backend}", [file], "-m", "gpu", "-k", selection)
            for file in test_files()
        ]

    def sanitizer(self, name: str, tool: str, *arguments: str, expected: int = 0) -> Stage:
        sanitize = (sys.executable, "-m", "tests.sanitizers.sanitize", *arguments)
        rehearsed = [*sanitize, "--device", "meta"]
        command = rehearsed if self.rehearsal else [*SANITIZER, tool, *sanitize]
        environment = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", **ONE_THREAD}
        return Stage(name, command, environment, (expected,))

    def groups(self) -> list[Group]:
        """The most informative first; what has passed on a GPU before, last. The shares are seconds
        of 780."""
        many = os.cpu_count() or 1
        one = ("--op", "gelu", "--gate", "normal")  # cell of a rehearsal
        sanitizers = [self.sanitizer(tool, tool) for tool in ("memcheck", "racecheck")]
        if not self.rehearsal:
            sanitizers += [self.sanitizer("an overrun", "memcheck", "--overrun", expected=9)]
        # All files together on 16 processors: one that is cut short reports as far as it came.
        files = 2 * many
        planted = [Stage(name, command) for name, (_, command) in PLANTED.items()]
        groups = [
            Group(205, [self.build()], needed=True),
            Group(15, [self.writer("load", "-c", LOAD)], needed=True),
            Group(40, [self.equality("cuda")]),
            Group(25, [self.bench("changed", "changed")]),
            Group(37, self.eight_bits("cuda", *options("--recipe", QUANTISED))),
            Group(35, [self.bench("bench of triton", "families", backend="triton")]),
            Group(30, self.eight_bits("triton", "--recipe", "both")),
            Group(25, [self.bench("headline", "headline", *one)]),
            Group(23, [self.bench("sizes", "sizes")]),
            Group(50, [self.bench("peers", "peers", "--op", "gelu", "--gate", "normal_tanh")]),
            Group(40, [self.torchao()]),
            Group(45, [self.layer("gelu")]),
            Group(40, [self.layer("swiglu")]),
            Group(45, [self.epilogue()]),
            Group(40, self.tests("cuda", "not triton"), files),
            Group(30, sanitizers, many),
            Group(20, [self.bench("bench of cuda", "all", *one)]),
            Group(15, [self.equality("triton")]),
            Group(20, self.tests("triton", "triton"), files),
        ]
        return [Group(3, planted, len(planted)), *groups] if self.rehearsal else groups
