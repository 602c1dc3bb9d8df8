"""The CUDA kernels that `make build` compiled, and files that are compiled to be looked at."""

import os
import re
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path

from gelu_kernels import _C, library
from machine_code.elf import functions, most_threads
from machine_code.sass import (
    Kernel,
    decode,
    disassemble,
    missing_triton,
    pair_sums,
    resources,
    run,
    tool,
)

ROOT = Path(__file__).parent.parent
LIBRARY = library.KERNELS
# The gates by their classes in the names of kernels.
CLASSES = {"".join(map(str.capitalize, name.split("_"))): name for name, *_ in _C.gates()}
SOURCES = sorted((ROOT / "csrc" / "cuda").rglob("*.cu"))


def missing_tools() -> list[str]:
    built = [] if " for " in _C.build_info()["cuda"] else ["a build with CUDA"]
    return [*built, *missing_programs("c++filt"), *missing_triton()]


def missing_programs(*programs: str) -> list[str]:
    return [name for name in programs if not shutil.which(name)]


@cache
def kernels(architecture: str, gate: str | None = None) -> list[Kernel]:
    """Of the library: all, those of a gate, or with "" those of none."""
    with tempfile.TemporaryDirectory() as folder:
        run([tool("cuobjdump"), "-xelf", f"{architecture}.cubin", LIBRARY], cwd=folder)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            parts = list(pool.map(partial(kernels_in, gate=gate), sorted(Path(folder).iterdir())))
    if not parts:
        raise LookupError(f"the library was not built for {architecture}")
    return [kernel for part in parts for kernel in part]


def kernels_in(cubin: Path, gate: str | None = None) -> list[Kernel]:
    content, used = cubin.read_bytes(), resources(cubin)
    names, threads, places = demangle(list(used)), most_threads(content), functions(content)
    chosen = [name for name in used if gate is None or gate_of(names[name]) == gate]
    if not chosen:
        return []
    codes = disassemble(cubin, "-fun", ",".join(str(places[name]) for name in chosen))
    return [
        Kernel(
            names[name],
            [decode(*fields) for fields in codes[name]],
            *used[name],
            *([threads[name]] if name in threads else []),
        )
        for name in chosen
    ]


def gate_of(name: str) -> str:
    found = (CLASSES[word] for word in re.findall(r"\w+", name) if word in CLASSES)
    return next(found, "")


def compiler(architecture: str, fused: bool = False) -> list[str]:
    """With the options of the build; `fused` lets it fuse what it likes."""
    cmake = (ROOT / "CMakeLists.txt").read_text()
    standard = re.search(r"CUDA_STANDARD (\d+)", cmake)[1]
    found = re.search(r"target_compile_options\(cuda_kernels PRIVATE (.*?)\)", cmake, re.DOTALL)
    options = [option for option in found[1].split() if not (fused and option == "-fmad=false")]
    return ["nvcc", f"-I{ROOT}", f"-arch={architecture}", f"-std=c++{standard}", *options]


def compile_kernels(source: Path, architecture: str, fused: bool = False) -> list[Kernel]:
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "cubin"
        run([*compiler(architecture, fused), "-cubin", "-o", cubin, source])
        return kernels_in(cubin)


def all_pair_sums(architecture: str) -> dict[str, int]:
    """Of all kernels, from their PTX, which the library has for its newest architecture alone."""
    command = [*compiler(architecture), "-ptx", "-o", "-"]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        texts = pool.map(lambda source: run([*command, source]), SOURCES)
        found = {name: sums for text in texts for name, sums in pair_sums(text).items()}
    names = demangle(list(found))
    return {names[name]: sums for name, sums in found.items()}


def demangle(names: list[str]) -> dict[str, str]:
    """map_rows<Forward<Normal, fp32>, fp32, false, 4>"""
    lines = run(["c++filt"], input="\n".join(names)).splitlines()
    casts, parameters = r"\((?:\w+::)+\w+\)(?=\d)", r"\((?!anonymous)[^<]*\)$"
    clutter = re.compile(rf"^void |\(anonymous namespace\)::|{casts}|\w+::|{parameters}")
    return {name: clutter.sub("", line) for name, line in zip(names, lines, strict=True)}
