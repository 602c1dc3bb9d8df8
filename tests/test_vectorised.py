"""Every hot CPU loop is vectorised at its instruction set's full width, for every gate and dtype,
calls no libm, and leaves nothing for the linker to swap between instruction sets.

The loops are compiled once more, with the options of CMakeLists.txt and g++'s report of what its
vectoriser did. The report names the function around each loop, with its gate and dtype.
"""

import platform
import re
import shutil
import subprocess
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LOOPS = ROOT / "csrc" / "cpu" / "loops.cpp"
SOI_LOOPS = ROOT / "csrc" / "cpu" / "soi_loops.cpp"

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or not shutil.which("g++"), reason="needs g++ for x86-64"
)

VECTOR_BYTES = {"baseline": 16, "avx2": 32, "avx512": 64}
GATES = ["Normal", "NormalTanh", "Logistic1702"]
DTYPES = ["fp64", "fp32", "fp16", "bf16"]
FUNCTIONS = ["Forward", "Backward", "DoubleBackward"]
# A hot loop is known by a line of its body.
MAP_BODY = "out[i] = apply<Function"
MAP_TWO_BODY = "const auto results = apply<Function"
COLUMN_SUMS_BODY = "sum[j] += unrounded"


@dataclass
class Compiled:
    defined: set[str]  # symbols that other objects can see, with their type
    undefined: set[str]
    widths: dict[tuple[str, int], set[int]]  # bytes in a vector, by function and line of the loop


def compile_options() -> dict[str, list[str]]:
    cmake = (ROOT / "CMakeLists.txt").read_text()
    release = re.search(r'set\(CMAKE_CXX_FLAGS_RELEASE "(.*?)"\)', cmake)[1].split()
    common = release + re.search(r"set\(loop_options (.*?)\)", cmake)[1].split()
    return {
        name: [*common, *options.split()]
        for name, options in re.findall(r"add_loops\((\w+)([^)]*)\)", cmake)
    }


def symbols(path: Path, *choice: str) -> list[str]:
    command = ["nm", "-C", "--format=posix", *choice, path]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def compile_loops(source: Path, capability: str, options: list[str], folder: Path) -> Compiled:
    loops, report = folder / f"{capability}.o", folder / f"{capability}.txt"
    command = ["g++", "-std=c++20", "-fPIC", "-fvisibility=hidden", f"-I{ROOT}", *options]
    command += [f"-DGELU_KERNELS_CAPABILITY={capability}", f"-fdump-tree-vect-optimized={report}"]
    subprocess.run([*command, "-c", source, "-o", loops], check=True)
    widths = defaultdict(set)
    function = ""
    vectorised = re.compile(rf"{source.name}:(\d+):.* optimized: loop vectorized using (\d+) byte")
    for line in report.read_text().splitlines():
        if line.startswith(";; Function "):
            function = line.replace("gelu_kernels::", "")
        elif found := vectorised.search(line):
            widths[function, int(found[1])].add(int(found[2]))
    return Compiled(
        {line.partition(" ")[0] for line in symbols(loops, "--extern-only", "--defined-only")},
        {line.partition(" ")[0] for line in symbols(loops, "--undefined-only")},
        widths,
    )


def compile_all(source: Path, factory: pytest.TempPathFactory) -> dict[str, Compiled]:
    folder, options = factory.mktemp("loops"), compile_options()
    with ThreadPoolExecutor() as pool:
        jobs = {
            name: pool.submit(compile_loops, source, name, options[name], folder)
            for name in options
        }
    return {name: job.result() for name, job in jobs.items()}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Compiled]:
    return compile_all(LOOPS, tmp_path_factory)


@pytest.fixture(scope="module")
def compiled_soi(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Compiled]:
    return compile_all(SOI_LOOPS, tmp_path_factory)


def loop_with(body: str, source: Path = LOOPS) -> int:
    """The number of the line where the loop with this body begins."""
    lines = source.read_text().splitlines()
    (line,) = (i for i, text in enumerate(lines) if body in text)
    return max(i for i in range(line + 1) if "for (" in lines[i]) + 1


@pytest.mark.parametrize("capability", VECTOR_BYTES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gate", GATES)
def test_hot_loops(compiled: dict[str, Compiled], gate: str, dtype: str, capability: str) -> None:
    if (capability, dtype) == ("baseline", "fp64"):
        pytest.skip("x86-64 without FMA has no fma for doubles but libm's")
    biases = [r"(?<!AddBias<)\b", r"\bAddBias<"]
    loops = [(f"{bias}{f}<{gate}, {dtype}>", MAP_BODY) for f, bias in product(FUNCTIONS, biases)]
    loops.append((rf"\bGluForward<{gate}, {dtype}>", MAP_BODY))
    loops.append((rf"\bGluBackward<{gate}, {dtype}>", MAP_TWO_BODY))
    # The loop itself may have been inlined into a caller, which has the same arguments.
    loops.append((rf"\bbackward_(row|column_sums)<{gate}, {dtype}>", COLUMN_SUMS_BODY))
    missing = []
    for name, body in loops:
        pattern = re.compile(name)
        widths = [
            widths
            for (function, line), widths in compiled[capability].widths.items()
            if line == loop_with(body) and pattern.search(function)
        ]
        if not widths or any(VECTOR_BYTES[capability] not in w for w in widths):
            missing.append((name, widths))
    assert not missing


@pytest.mark.parametrize("capability", VECTOR_BYTES)
@pytest.mark.parametrize(
    "body", ["flagged(m, x[i])", "flagged(m, Storage", "flagged(flags[i]", "flagged(flags[j]"]
)
def test_hot_loops_of_the_soi_map(
    compiled_soi: dict[str, Compiled], body: str, capability: str
) -> None:
    """In every function that has the loop, be it inlined or not."""
    widths = [
        widths
        for (function, line), widths in compiled_soi[capability].widths.items()
        if line == loop_with(body, SOI_LOOPS)
    ]
    assert widths and all(VECTOR_BYTES[capability] in w for w in widths)


@pytest.mark.parametrize("capability", VECTOR_BYTES)
def test_no_symbol_but_the_table_of_the_soi_map(
    compiled_soi: dict[str, Compiled], capability: str
) -> None:
    assert compiled_soi[capability].defined == {f"gelu_kernels::cpu::soi_{capability}"}


@pytest.mark.parametrize("capability", VECTOR_BYTES)
def test_no_symbol_but_the_table(compiled: dict[str, Compiled], capability: str) -> None:
    """A weak symbol, an inline function, could be linked into another instruction set's loop."""
    assert compiled[capability].defined == {f"gelu_kernels::cpu::{capability}"}


@pytest.mark.parametrize("capability", VECTOR_BYTES)
def test_no_libm(
    compiled: dict[str, Compiled], compiled_soi: dict[str, Compiled], capability: str
) -> None:
    allowed = {"memcpy", "memmove", "memset", "__stack_chk_fail", "_GLOBAL_OFFSET_TABLE_"}
    if capability == "baseline":
        allowed.add("fma")
    assert compiled[capability].undefined | compiled_soi[capability].undefined <= allowed
