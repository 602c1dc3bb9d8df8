"""The project with its C++ compiled for a sanitizer of g++: a folder of links to the sources, with
libraries of its own, in which the tests' programs run.

Torch and libgomp are compiled for no sanitizer. AddressSanitizer needs no more than to be loaded
first: what malloc gives torch then ends at poisoned bytes. ThreadSanitizer sees the locks of
pthreads, and so Python's threads, but not how libgomp's wait for each other, and reports races
between one call and the next: fork_and_join.cpp tells it.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from release.environments import PATH
from tests import ROOT, cpp_library

HERE = Path(__file__).parent
COMPILER = os.environ.get("CXX", "c++")  # as CMake chooses

# The runtime is not for what a program starts, such as a compiler.
LAUNCH = """
import os, runpy, sys
del os.environ["LD_PRELOAD"]
import gelu_kernels
assert gelu_kernels.__file__.startswith(os.getcwd()), gelu_kernels.__file__
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True)
class Sanitizer:
    name: str
    flags: list[str]
    runtime: str  # the first library of the process, as Python comes without it
    options: dict[str, str]
    sources: list[Path] = field(default_factory=list)  # of a library that comes after it

    @property
    def missing(self) -> str:
        """What this machine lacks, empty if nothing."""
        if not sys.platform.startswith("linux"):
            return "Linux"
        tools = [name for name in ("cmake", "ninja", COMPILER) if not shutil.which(name, path=PATH)]
        return ", ".join(tools or [str(p) for p in self._runtimes if not p.is_absolute()])

    @property
    def _runtimes(self) -> list[Path]:
        """With the library that throws exceptions, which the sanitizer looks for when it begins. A
        bare name if the compiler has none."""
        names = [self.runtime, "libstdc++.so.6"]
        commands = [[COMPILER, f"-print-file-name={name}"] for name in names]
        return [Path(subprocess.check_output(command, text=True).strip()) for command in commands]

    @property
    def _build_environment(self) -> dict[str, str]:
        flags = ["-O1", "-g1", "-fno-omit-frame-pointer", *cpp_library.processor_flags()]
        return {
            **{name: value for name, value in os.environ.items() if "PYTEST" not in name},
            "CXXFLAGS": " ".join([*flags, *self.flags]),
            "CMAKE_COMPILE_WARNING_AS_ERROR": "OFF",  # g++ warns of what sanitizers add
            "CMAKE_TOOLCHAIN_FILE": str(HERE / "toolchain.cmake"),
            "FORCE_ONLY_CPU": "1",
            "DEBUG": "1",
        }

    @contextmanager
    def built(self) -> Iterator["Built"]:
        """Only what has changed is compiled."""
        with cpp_library.build_folder(f"sanitized-{self.name}") as folder:
            link_sources(folder)
            build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
            made = subprocess.run(
                build, cwd=folder, env=self._build_environment, capture_output=True, text=True
            )
            assert made.returncode == 0, made.stdout + made.stderr
            preloaded = self._runtimes
            if self.sources:
                preloaded.append(folder / "preloaded.so")
                command = [COMPILER, "-O1", "-shared", "-fPIC", *cpp_library.WARNINGS]
                subprocess.run([*command, *self.sources, "-o", preloaded[-1]], check=True)
            yield Built(self, folder, preloaded)


@dataclass(frozen=True)
class Built:
    sanitizer: Sanitizer
    folder: Path
    preloaded: list[Path]

    def run(self, module: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
        """A module of the tests or of Python's packages, as a program."""
        return subprocess.run(
            [*without_random_addresses(), sys.executable, "-c", LAUNCH, module, *arguments],
            cwd=self.folder,
            env={
                **self.sanitizer._build_environment,
                **self.sanitizer.options,
                "LD_PRELOAD": ":".join(map(str, self.preloaded)),
                "PYTHONPATH": str(self.folder),
                **variables,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def without_random_addresses() -> list[str]:
    """Where Linux chooses from more of them, ThreadSanitizer of g++ 12 ends with "unexpected memory
    mapping"."""
    bits = Path("/proc/sys/vm/mmap_rnd_bits")
    many = bits.exists() and int(bits.read_text()) > 28
    return ["setarch", "-R"] if many and shutil.which("setarch") else []


def link_sources(folder: Path) -> None:
    """All but what is built."""
    package = folder / "gelu_kernels"
    package.mkdir(exist_ok=True)
    for link in [*folder.iterdir(), *package.iterdir()]:
        if link.is_symlink():
            link.unlink()
    built = re.compile(r"\..*|build|torch\d.*|.*\.so|__pycache__|.*\.egg-info")
    for path in [*ROOT.iterdir(), *(ROOT / "gelu_kernels").iterdir()]:
        if path.name != "gelu_kernels" and not built.fullmatch(path.name):
            (folder / path.relative_to(ROOT)).symlink_to(path)


# A null pointer faults by itself, and the types of torch's objects are torch's to check; both would
# be checked at each of its pointers. Python never gives all of its memory back.
ADDRESS_AND_UNDEFINED = Sanitizer(
    "address",
    ["-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize=null,vptr"],
    "libasan.so",
    {
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    },
)
THREAD = Sanitizer(
    "thread",
    ["-fsanitize=thread"],
    "libtsan.so",
    {"TSAN_OPTIONS": f"halt_on_error=1:suppressions={HERE / 'thread.supp'}"},
    [HERE / "fork_and_join.cpp"],
)
