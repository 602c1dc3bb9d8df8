"""Every hot CPU loop is vectorised at its instruction set's full width, for every gate and dtype,
calls no libm, and leaves nothing for the linker to swap between instruction sets.

For a report of what g++'s vectoriser did, the loops are compiled once more, with the options of
CMakeLists.txt. The report names the function around each loop, with its gate and dtype.
"""

import os
import platform
import re
import shutil
import subprocess
import sysconfig
from collections import defaultdict
from itertools import product
from pathlib import Path

import pytest
import torch

from tests import ROOT

BUILD = ROOT / "build" / f"torch-{torch.__version__}-{sysconfig.get_platform()}"  # as in setup.py
LOOPS = ROOT / "csrc" / "cpu" / "loops.cpp"
SOI_LOOPS = ROOT / "csrc" / "cpu" / "soi_loops.cpp"
DROPOUT_LOOPS = ROOT / "csrc" / "cpu" / "dropout_loops.cpp"
CODED_LOOPS = ROOT / "csrc" / "cpu" / "coded_loops.cpp"

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or not shutil.which("g++"), reason="needs g++ for x86-64"
)

VECTOR_BYTES = {"baseline": 16, "avx2": 32, "avx512": 64}
TABLES = {
    f"gelu_kernels::cpu::{family}{name}"
    for family in ("", "soi_", "dropout_", "coded_")
    for name in VECTOR_BYTES
}
DTYPES = ["fp64", "fp32", "fp16", "bf16"]
# A hot loop is known by a line of its body.
MAP_BODIES = "out[i] = apply<Function", "const auto results = apply<Function"
COLUMN_SUMS_BODY = "sum[j] += unrounded"
CDF_BODY = "Function::apply(S::load(x[j]), loc[j]"
CDF_SUMS_BODY = "Function::add(gradients.of_loc"
EVALUATE_BODY = "derivative[i] = Gate::template derivative<"


# Bytes in a vector, by function and line of the loop.
Widths = dict[tuple[str, int], set[int]]


def rows(header: str, macro: str) -> list[list[str]]:
    """Of a list in csrc/gates, a macro with a row `_(name, Type, ...)` for each thing."""
    text = (ROOT / "csrc" / "gates" / header).read_text()
    body = re.search(rf"#define {macro}\(_\)((?:.*\\\n)*.*)", text)[1]
    return [re.findall(r"\w+", row) for row in re.findall(r"\b_\((.*?)\)", body, re.DOTALL)]


GATES = [gate for _, gate, *_ in rows("gates.h", "GELU_KERNELS_FOR_EACH_GATE")]
PASSES = {
    function: takes_bias == "true"
    for _, function, takes_bias in rows("passes.h", "GELU_KERNELS_FOR_EACH_PASS")
}


def compile_options() -> dict[str, list[str]]:
    cmake = (ROOT / "CMakeLists.txt").read_text()
    release = re.search(r'set\(CMAKE_CXX_FLAGS_RELEASE "(.*?)"\)', cmake)[1].split()
    common = release + re.search(r"set\(loop_options (.*?)\)", cmake)[1].split()
    return {
        name: [*common, *options.split()]
        for name, options in re.findall(r"add_loops\((\w+)([^)]*)\)", cmake)
    }


def symbols(path: Path, *choice: str) -> set[str]:
    command = ["nm", "-C", "--format=posix", *choice, path]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {line.partition(" ")[0] for line in listed.splitlines()}


def objects(capability: str) -> list[Path]:
    """Of the build."""
    folder = BUILD / "CMakeFiles" / f"loops_{capability}.dir"
    sources = LOOPS, SOI_LOOPS, DROPOUT_LOOPS, CODED_LOOPS
    return [folder / f"{source.relative_to(ROOT)}.o" for source in sources]


def compile_loops(source: Path, capability: str, folder: Path) -> Widths:
    report = folder / f"{capability}.txt"
    command = ["g++", "-std=c++20", "-fPIC", "-fvisibility=hidden", f"-I{ROOT}"]
    command += compile_options()[capability]
    command += [f"-DGELU_KERNELS_CAPABILITY={capability}", f"-fdump-tree-vect-optimized={report}"]
    subprocess.run([*command, "-S", source, "-o", os.devnull], check=True)
    # A copy of a function has its arguments in its mangled name alone.
    with report.open() as lines:
        demangled = subprocess.run(
            ["c++filt"], stdin=lines, capture_output=True, text=True, check=True
        ).stdout
    widths = defaultdict(set)
    function = ""
    vectorised = re.compile(rf"{source.name}:(\d+):.* optimized: loop vectorized using (\d+) byte")
    for line in demangled.splitlines():
        if line.startswith(";; Function "):
            function = line.replace("gelu_kernels::", "")
        elif found := vectorised.search(line):
            widths[function, int(found[1])].add(int(found[2]))
    return widths


def loop_with(body: str, source: Path = LOOPS) -> int:
    """The number of the line where the loop with this body begins."""
    lines = source.read_text().splitlines()
    (line,) = (i for i, text in enumerate(lines) if body in text)
    return max(i for i in range(line + 1) if "for (" in lines[i]) + 1


# Each is compiled anew, which takes half a minute.
@pytest.mark.slow
@pytest.mark.parametrize("capability", VECTOR_BYTES)
def test_hot_loops(capability: str, tmp_path: Path) -> None:
    widths = compile_loops(LOOPS, capability, tmp_path)
    missing = []
    for gate, dtype in product(GATES, DTYPES):
        if (capability, dtype) == ("baseline", "fp64"):
            continue  # x86-64 without FMA has no fma for doubles but libm's
        for name, bodies in hot_loops(gate, dtype, capability):
            pattern = re.compile(name)
            lines = {loop_with(body) for body in bodies}
            found = [
                bytes_
                for (function, line), bytes_ in widths.items()
                if line in lines and pattern.search(function)
            ]
            if not found or any(VECTOR_BYTES[capability] not in bytes_ for bytes_ in found):
                missing.append((name, found))
    assert not missing


def hot_loops(gate: str, dtype: str, capability: str) -> list[tuple[str, tuple[str, ...]]]:
    """Patterns of functions, and lines of their loops' bodies."""
    functions = [rf"(?<!AddBias<)\b{function}" for function in PASSES]
    functions += [rf"\bAddBias<{function}" for function in PASSES if PASSES[function]]
    loops = [(f"{function}<{gate}, {dtype}>", MAP_BODIES) for function in functions]
    # The loop itself may have been inlined into a caller, which has the same arguments.
    loops.append((rf"\bBiasRow<{gate}, {dtype}>", (COLUMN_SUMS_BODY,)))
    loops.append((rf"\bCdfForward<{gate}, {dtype}>", (CDF_BODY,)))
    loops.append((rf"\bevaluate(_block)?<{gate}, {dtype}, ", (EVALUATE_BODY,)))
    if (capability, dtype) not in (("baseline", "fp16"), ("baseline", "bf16")):  # g++ 12 does not
        loops.append((rf"\bCdfRow<{gate}, {dtype}>", (CDF_SUMS_BODY,)))
    return loops


SOI_BODIES = [
    "half_threshold<Gate>(",
    "open |= place",
    "bernoulli<Gate>(z[i]",
    "standard_score(",
    "sum[i] = S::store(unrounded)",
    "static_cast<float>(Storage<Stored>::load(x[i]))",
    "flagged(flags[i]",
    "flagged(flags[j]",
]
DROPOUT_BODIES = [
    "store(as_factor<Precision>(value[i]) * factor)",
    "store(product * factor)",
    "dx[i] = flagged(flags[i], Storage<Stored>::store(gradient))",
    "dup[i] = flagged(flags[i], Storage<Stored>::store(gradient))",
    "store(product * derivative[i])",
    "store(kept)",
]


@pytest.mark.slow
@pytest.mark.parametrize("capability", VECTOR_BYTES)
def test_hot_loops_of_masks(capability: str, tmp_path: Path) -> None:
    """In every function that has the loop, be it inlined or not."""
    for source, bodies in ((SOI_LOOPS, SOI_BODIES), (DROPOUT_LOOPS, DROPOUT_BODIES)):
        widths = compile_loops(source, capability, tmp_path)
        for body in bodies:
            line = loop_with(body, source)
            found = [bytes_ for (_, at), bytes_ in widths.items() if at == line]
            assert found and all(VECTOR_BYTES[capability] in bytes_ for bytes_ in found), body


def test_no_symbol_but_the_tables() -> None:
    """A weak symbol, an inline function, could be linked into another instruction set's loop."""
    built = [object_ for capability in VECTOR_BYTES for object_ in objects(capability)]
    defined = [symbols(object_, "--extern-only", "--defined-only") for object_ in built]
    assert sorted(map(list, defined)) == sorted([table] for table in TABLES)


def test_no_libm() -> None:
    allowed = {"memcpy", "memmove", "memset", "__stack_chk_fail", "_GLOBAL_OFFSET_TABLE_"}
    for capability in VECTOR_BYTES:
        undefined = set.union(*(symbols(x, "--undefined-only") for x in objects(capability)))
        may_call = allowed | {"fma"} if capability == "baseline" else allowed
        assert undefined <= may_call, capability
