"""Compiles the project's .cu files: their PTX, and their host code in one library.

The library has the operators, and a stub in place of CUDA's runtime. Objects that `make build` made
with PTX and line numbers, as in .ci/run, are not compiled again.
"""

import ctypes
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from torch.utils import cpp_extension

from gelu_kernels import _C  # which defines the operators
from machine_code.sass import missing_triton, tool
from tests import ROOT, cpp_library

HERE = Path(__file__).parent
CSRC = ROOT / "csrc"
OPERATORS = [CSRC / "ops" / name for name in ("check.cpp", "random.cpp", "device/cuda.cpp")]
OPERATORS += [CSRC / "ops" / "quantized" / "results.cpp"]
OPERATORS += [
    CSRC / "ops" / p.name / f"{p.name}.cpp" for p in sorted(CSRC.glob("cuda/*")) if p.is_dir()
]
REGISTRATION = HERE / "cuda_runtime" / "operators.cpp"
STUB = sorted(path for path in REGISTRATION.parent.glob("*.cpp") if path != REGISTRATION)
KERNELS = {
    "_".join(p.relative_to(CSRC).with_suffix("").parts): p for p in sorted(CSRC.rglob("*.cu"))
}

LIBRARY = "gelu_kernels_ptx_on_cpu.so"
WITH_LIBRARY = "sm_90"  # whose PTX comes with it
ARCHITECTURES = [WITH_LIBRARY, "sm_80", "sm_100", "sm_120"]
BUILT = "13.0.88 for 80-real 90"  # the nvcc that errors tell of
MADE = ROOT / "build" / f"torch-{torch.__version__}-{sysconfig.get_platform()}"  # by setup.py


@cache
def _objects() -> dict[str, Path]:
    """The build's objects, if they have the library's PTX and its line numbers."""
    cache = MADE / "CMakeCache.txt"
    has_ptx = WITH_LIBRARY.removeprefix("sm_") in _C.build_info()["cuda"].split()
    if not has_ptx or missing_triton() or not cache.exists():
        return {}
    if not re.search(r"^CMAKE_CUDA_FLAGS:.*line-info", cache.read_text(), re.M):
        return {}
    folder = MADE / "CMakeFiles" / "cuda_kernels.dir"
    return {name: folder / f"{path.relative_to(ROOT)}.o" for name, path in KERNELS.items()}


def _variables() -> Iterator[str]:
    flags = [*cpp_library.WARNINGS, f"-I{ROOT}", f"-DGELU_KERNELS_CUDA='\"{BUILT}\"'"]
    flags += [f"-isystem {path}" for path in cpp_extension.include_paths()]
    yield f"cxx = {cpp_extension.get_cxx_compiler()}"
    yield f"warnings = {','.join(cpp_library.WARNINGS)}"
    yield f"operator_flags = {' '.join(flags)}"
    yield f"torch_library = {Path(torch.__file__).parent / 'lib'}"
    if _objects():
        yield f"cuobjdump = {tool('cuobjdump')}"
    yield f"include {HERE / 'cuda.ninja'}"


def _nvcc(architecture: str) -> str:
    """The command, with the options of the build."""
    cmake = (ROOT / "CMakeLists.txt").read_text()
    standard = re.search(r"CUDA_STANDARD (\d+)", cmake)[1]
    options = re.search(r"target_compile_options\(cuda_kernels PRIVATE (.*?)\)", cmake)[1]
    virtual = architecture.replace("sm", "compute")
    return f"nvcc -I{ROOT} -arch={virtual} -std=c++{standard} -O3 {options} -lineinfo"


def _steps() -> Iterator[str]:
    made = _objects()
    yield "build operators.o: operators operators.cpp"  # the longest first
    for architecture in ARCHITECTURES:
        for name, path in KERNELS.items():
            ptx = f"{architecture}/{name}.ptx"
            if architecture != WITH_LIBRARY:
                yield f"build {ptx}: ptx {path}"
            elif made:
                yield f"build {ptx}: embedded_ptx {made[name]}"
            else:
                yield f"build {name}.o | {ptx}: host_and_ptx {path}"
            yield f"  architecture = {architecture}"
            yield f"  nvcc = {_nvcc(architecture)}"
            yield f"  name = {name}"
            yield f"  ptx = {ptx}"
        everything = " ".join(f"{architecture}/{name}.ptx" for name in KERNELS)
        yield f"build {architecture}: phony {everything}"
    for path in STUB:
        yield f"build stub_{path.stem}.o: stub {path}"
    objects = ["operators.o", *(f"stub_{path.stem}.o" for path in STUB)]
    objects += [str(made.get(name, f"{name}.o")) for name in KERNELS]
    yield f"build {LIBRARY}: link {' '.join(objects)}"


def _build(target: str) -> Path:
    """Compiles what has changed, and returns the folder with the target."""
    cuda = [f"{cpp_extension.CUDA_HOME}/bin"] if cpp_extension.CUDA_HOME else []
    path = os.pathsep.join([sysconfig.get_path("scripts"), *cuda, os.environ["PATH"]])
    if not shutil.which("nvcc", path=path):
        pytest.skip("needs nvcc")
    with cpp_library.build_folder("ptx_on_cpu") as folder:
        # One file for all sources that include torch, whose headers take 5 to 40 s to compile.
        one_file = "".join(f'#include "{path}"\n' for path in [*OPERATORS, REGISTRATION])
        steps = "\n".join([*_variables(), *_steps(), ""])
        for name, text in {"operators.cpp": one_file, "build.ninja": steps}.items():
            if not (folder / name).exists() or (folder / name).read_text() != text:
                (folder / name).write_text(text)
        made = [(MADE, "cuda_kernels")] if _objects() else []
        for where, wanted in [*made, (folder, target)]:
            ninja = subprocess.run(
                ["ninja", "-C", where, wanted],
                env={**os.environ, "PATH": path},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            assert ninja.returncode == 0, ninja.stdout
    return folder


@cache
def library() -> ctypes.CDLL:
    return ctypes.CDLL(str(_build(LIBRARY) / LIBRARY))


@cache
def ptx(architecture: str) -> list[str]:
    """The PTX of each .cu file."""
    folder = _build(architecture) / architecture
    return [(folder / f"{name}.ptx").read_text() for name in KERNELS]


def ptx_of(name: str, architecture: str) -> str:
    """The PTX of one of KERNELS."""
    file = f"{architecture}/{name}.ptx"
    return (_build(file) / file).read_text()
