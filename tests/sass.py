"""The kernels as a GPU executes them: what a thread issues for an element where all operands are
rows of 16-byte vectors.

`python tests/sass.py` prints this for every kernel of CUDA and of Triton, beside what peers'
formulas need; `python tests/sass.py --record` also writes it to sass_budgets.csv, as what a test
allows.
"""

import csv
import math
import os
import re
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cubin
import triton_code
from cases import BACKENDS, CASES, Case
from cubin import ROOT, Kernel
from vector_kernels import VectorKernel, busiest, vector_kernels

sys.path.append(str(ROOT))  # `python tests/sass.py` leaves it out

from bench.machines import MACHINES  # noqa: E402

ARCHITECTURES = ["sm_80", "sm_90", "sm_100"]
SOURCES = sorted((ROOT / "csrc" / "cuda").glob("*.cu"))
PEERS = ROOT / "tests" / "sass_peers.cu"
BUDGETS = ROOT / "tests" / "sass_budgets.csv"

Found = dict[str, dict[Case, VectorKernel]]  # by architecture


def missing_tools(backend: str) -> list[str]:
    return cubin.missing_tools() if backend == "cuda" else triton_code.missing_tools()


def peers(kernels: Iterable[Kernel]) -> dict[Case, VectorKernel]:
    found = {}
    for kernel in kernels:
        op, gate, dtype = re.match(r"(\w+)<(\w+), (\w+)>", kernel.name).groups()
        case = Case(op, gate, dtype, False, "peers")
        found[case] = VectorKernel(case, kernel)
    return found


def compile_backend(
    backend: str, architectures: list[str] = ARCHITECTURES, sources: list[Path] = SOURCES
) -> dict[str, list[Kernel]]:
    """The kernels by architecture; all of Triton's."""
    if backend == "triton":
        return {name: triton_code.nvidia_kernels(name) for name in architectures}
    return compile_files(sources, cubin.options(), architectures)


def compile_files(
    sources: list[Path], choice: list[str], architectures: list[str] = ARCHITECTURES
) -> dict[str, list[Kernel]]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {
            architecture: [
                pool.submit(cubin.compile_kernels, source, architecture, choice)
                for source in sources
            ]
            for architecture in architectures
        }
    return {name: [x for job in job_list for x in job.result()] for name, job_list in jobs.items()}


def read_budgets() -> dict[Case, dict[str, float]]:
    """By architecture."""
    with BUDGETS.open() as file:
        return {
            Case(op, gate, dtype, biased == "biased", backend): dict(
                zip(ARCHITECTURES, map(float, slots), strict=True)
            )
            for op, gate, dtype, biased, backend, *slots in list(csv.reader(file))[1:]
        }


def write_budgets(found: Found) -> None:
    """With room for what another version of the compiler may do differently. The budgets of a
    backend that was not compiled stay."""
    broken = [x.kernel.name for kernels in found.values() for x in kernels.values() if not x.stores]
    if broken:
        sys.exit(f"no vectors in {', '.join(broken)}")
    budgets = read_budgets()
    for case in found["sm_90"]:
        budgets[case] = {
            name: math.ceil(2 * found[name][case].slots + 0.5) / 2 for name in ARCHITECTURES
        }
    with BUDGETS.open("w") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["op", "gate", "dtype", "bias", "backend", *ARCHITECTURES])
        for case in CASES:
            writer.writerow([*in_words(case), *budgets[case].values()])


def in_words(case: Case) -> list[str]:
    return [*case[:3], "biased" if case.biased else "", case.backend]


def print_table(ours: Found, theirs: Found) -> None:
    print("Slots for an element. What follows the slots is for sm_90: those of the peers' formula,")
    print("those that memory leaves time for on an H100, registers, loads that are under way at a")
    print("time, of all loads, and instructions of the special function unit for an element.\n")
    line = (
        "{:<16}{:<13}{:<6}{:<7}{:<8}" + "{:>8}" * len(ARCHITECTURES) + "{:>7}{:>6}{:>10}{:>6}{:>6}"
    )
    after = ["peers", "limit", "registers", "loads", "mufu"]
    print(line.format("op", "gate", "dtype", "bias", "backend", *ARCHITECTURES, *after))
    for case, x in ours["sm_90"].items():
        slots = [f"{ours[name][case].slots:.1f}" for name in ARCHITECTURES]
        peer = theirs.get("sm_90", {}).get(case._replace(backend="peers"))
        compared = f"{peer.slots:.1f}" if peer else ""
        limit = "" if case.dtype == "fp64" else f"{MACHINES['H100'].limit(case.moved):.0f}"
        loads = f"{x.loads_in_flight}/{x.loads}"
        numbers = [*slots, compared, limit, x.kernel.registers, loads, f"{x.mufu:.1f}"]
        print(line.format(*in_words(case), *numbers))


def main() -> None:
    found = {name: {} for name in ARCHITECTURES}
    theirs = {}
    for backend in BACKENDS:
        if missing := missing_tools(backend):
            print(f"without {backend}: needs {', '.join(missing)}", file=sys.stderr)
            continue
        for name, kernels in compile_backend(backend).items():
            found[name] |= busiest(vector_kernels(kernels))
        if backend == "cuda":
            # The peers let the compiler fuse what it likes.
            fusing = [option for option in cubin.options() if option != "-fmad=false"]
            theirs = {name: peers(x) for name, x in compile_files([PEERS], fusing).items()}
    ours = {name: {case: x[case] for case in CASES if case in x} for name, x in found.items()}
    print_table(ours, theirs)
    if "--record" in sys.argv:
        write_budgets(ours)


if __name__ == "__main__":
    main()
