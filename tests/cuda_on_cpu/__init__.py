"""The CUDA kernels on a machine without a GPU: the .cu files as C++, over memory of the CPU.

Threads of a block run one after another, from barrier to barrier; shared memory starts as NaN. The
special function unit errs by as much as it may. Nothing here tells what a GPU would take for it.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import NamedTuple

import cpp_library

import gelu_kernels  # noqa: F401 (it defines the operators)

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
REGISTRATION = HERE / "operators.cpp"

# No vectors of two: without a fused multiply-add in the processor, g++ 12 leaves out a rounding of
# the operations that stand for it (float of a sum in double), and 15 % of glu_forward differ.
FLAGS = ["-O2", "-ffp-contract=off", "-fno-math-errno", "-fvisibility=hidden"]
FLAGS += ["-fno-tree-slp-vectorize"]
WARNINGS = [*cpp_library.WARNINGS, "-Wno-unknown-pragmas"]
SANITIZERS = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover"]


class Error(IntEnum):
    """Of a result of the special function unit, within its bound."""

    NONE = 0
    UP = 1
    DOWN = 2
    RANDOM = 3


INVALID_CONFIGURATION = 9  # of CUDA's errors
BUILT = "13.0.88 for 80-real 90"  # the nvcc that errors tell of

CSRC = ROOT / "csrc"
OPERATORS = [CSRC / "ops" / "check.cpp", CSRC / "ops" / "device" / "cuda.cpp"]
OPERATORS += [p for p in sorted(CSRC.glob("ops/*/*.cpp")) if p.stem == p.parent.name]  # families


def _sources(build: Path) -> list[Path]:
    """A .cu file needs CUDA's header, which nvcc includes by itself; all that includes torch is one
    file, as torch's headers take 5 to 40 s of each."""
    includes = {
        f"{path.parent.name}_{path.stem}.cpp": ["<cuda_runtime.h>", f'"{path.relative_to(ROOT)}"']
        for path in sorted(CSRC.glob("cuda/**/*.cu"))
    }
    includes["core_operators.cpp"] = [
        f'"{path.relative_to(ROOT)}"' for path in [*OPERATORS, REGISTRATION]
    ]
    for name, files in includes.items():
        text = "".join(f"#include {file}\n" for file in files)
        if not (build / name).exists() or (build / name).read_text() != text:
            (build / name).write_text(text)
    shim = sorted(path for path in HERE.glob("*.cpp") if path != REGISTRATION)
    return [*shim, *(build / name for name in includes)]


@cache
def library() -> ctypes.CDLL:
    """GELU_KERNELS_SANITIZE is for a process that preloads what the sanitizers need."""
    name, flags = "cuda_on_cpu", [*FLAGS, *WARNINGS, *cpp_library.processor_flags()]
    if "GELU_KERNELS_SANITIZE" in os.environ:
        os.environ.pop("LD_PRELOAD", None)  # the compiler does without
        name, flags = "cuda_on_cpu-sanitized", flags + SANITIZERS
    with cpp_library.build_folder(name) as folder:
        loaded = cpp_library.compile_and_load(
            "gelu_kernels_cuda_on_cpu",
            _sources(folder),
            folder,
            ["-DGELU_KERNELS_CUDA_ON_CPU", f"-DGELU_KERNELS_CUDA='\"{BUILT}\"'", *flags],
            link_flags=flags,
            include=[HERE, ROOT],
        )
    for count in ("launches", "loaded", "devices_set"):
        getattr(loaded, f"cuda_on_cpu_{count}").restype = ctypes.c_int64
    loaded.cuda_on_cpu_run_ends.argtypes = [ctypes.c_int64]
    loaded.cuda_on_cpu_set_errors.argtypes = [
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_uint32,
        ctypes.c_double,
    ]
    return loaded


@contextmanager
def enabled() -> Iterator[None]:
    """The operators take tensors of the CPU to the CUDA kernels."""
    library().cuda_on_cpu_enable()
    try:
        yield
    finally:
        library().cuda_on_cpu_disable()


@contextmanager
def special_function_unit(
    exp2: Error, reciprocal: Error, seed: int = 0, scale: float = 1
) -> Iterator[None]:
    """`scale` multiplies the bounds."""
    library().cuda_on_cpu_set_errors(exp2, reciprocal, seed, scale)
    try:
        yield
    finally:
        library().cuda_on_cpu_set_errors(Error.RANDOM, Error.RANDOM, 0, 1)


@contextmanager
def only_ends(blocks: int) -> Iterator[None]:
    """Of a longer launch, only so many blocks run at either end."""
    library().cuda_on_cpu_run_ends(blocks)
    try:
        yield
    finally:
        library().cuda_on_cpu_run_ends(0)


@contextmanager
def on_device(device: int) -> Iterator[None]:
    """All tensors are on this one of 128 devices."""
    library().cuda_on_cpu_put_tensors_on(device)
    try:
        yield
    finally:
        library().cuda_on_cpu_put_tensors_on(0)


@contextmanager
def current_device(device: int) -> Iterator[None]:
    library().cuda_on_cpu_set_current_device(device)
    try:
        yield
    finally:
        library().cuda_on_cpu_set_current_device(0)


@contextmanager
def capture() -> Iterator[None]:
    """No kernel can be loaded."""
    library().cuda_on_cpu_capture(True)
    try:
        yield
    finally:
        library().cuda_on_cpu_capture(False)


def fail_next(error: int = INVALID_CONFIGURATION) -> None:
    """The next time that a kernel is loaded or started."""
    library().cuda_on_cpu_fail_next(error)


class State(NamedTuple):
    """The fake runtime's. It counts for the whole process."""

    launches: int
    loaded: int  # kernels, on all devices together
    devices_set: int  # by cudaSetDevice
    current_device: int
    device_of_last: int  # launch
    last_error: int


def state() -> State:
    return State(*(getattr(library(), f"cuda_on_cpu_{name}")() for name in State._fields))


def launches() -> int:
    """So many have been started."""
    return library().cuda_on_cpu_launches()
