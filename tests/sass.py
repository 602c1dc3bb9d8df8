"""The CUDA kernels as a GPU executes them: what a thread issues for an element where all operands
are rows of 16-byte vectors.

`python tests/sass.py` prints this for every kernel, beside what peers' formulas need;
`python tests/sass.py --record` also writes it to sass_budgets.csv, as what a test allows.
"""

import csv
import math
import os
import re
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import NamedTuple

from control_flow import Code, ControlFlow, is_wide, narrow_accesses
from cubin import ROOT, Kernel, compile_kernels, missing_tools, options

ARCHITECTURES = ["sm_80", "sm_90", "sm_100"]
SOURCES = sorted((ROOT / "csrc" / "cuda").glob("*.cu"))
PEERS = ROOT / "tests" / "sass_peers.cu"
BUDGETS = ROOT / "tests" / "sass_budgets.csv"

GATES = ["Normal", "NormalTanh", "Logistic1702"]
BYTES = {"fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2}
INPUTS = {"forward": 1, "backward": 2, "double_backward": 3, "column_sums": 2}  # but for the bias
VECTOR_BYTES = 16

# Measured bandwidth; four instructions of 32 threads in each cycle of each processor.
H100_BYTES_PER_SECOND = 3.0e12
H100_SLOTS_PER_SECOND = 132 * 4 * 32 * 1.7e9


class Case(NamedTuple):
    op: str
    gate: str
    dtype: str
    biased: bool

    @property
    def h100_limit(self) -> float:
        """Slots for an element while its bytes pass through memory."""
        moved = (INPUTS[self.op] + 1) * BYTES[self.dtype]
        return moved / H100_BYTES_PER_SECOND * H100_SLOTS_PER_SECOND


CASES = [
    Case(*case)
    for op in INPUTS
    for case in product([op], GATES, BYTES, [True] if op == "column_sums" else [False, True])
]


@dataclass(frozen=True)
class VectorKernel:
    case: Case
    kernel: Kernel
    has_loop: bool

    @cached_property
    def path(self) -> Code:
        """What is issued from the entry to the exit, or once round the loop."""
        flow = ControlFlow(self.kernel.instructions)
        return flow.vector_loop() if self.has_loop else flow.vector_path()

    @property
    def loads(self) -> int:
        return self._wide("LDG")

    @property
    def stores(self) -> int:
        return self._wide("STG")

    @property
    def narrow_accesses(self) -> int:
        return len(narrow_accesses(self.path))

    @property
    def slots(self) -> float:
        return self._per_element(len(self.path))

    @property
    def mufu(self) -> float:
        return self._per_element(sum(instruction.name == "MUFU" for instruction in self.path))

    @property
    def loads_in_flight(self) -> int:
        """The most vectors that are under way at a time, none of them waited for."""
        most, under_way = 0, []
        for instruction in self.path:
            used = set(re.findall(r"\bR(\d+)", instruction.operands))
            under_way = [registers for registers in under_way if not registers & used]
            if is_wide(instruction) and instruction.name == "LDG":
                first = int(re.match(r"R(\d+)", instruction.operands)[1])
                under_way.append({str(first + i) for i in range(4)})
                most = max(most, len(under_way))
        return most

    @property
    def branches(self) -> int:
        """Those on what was loaded: of the threads of a warp, some may go the other way."""
        wide = [i for i, instruction in enumerate(self.path) if is_wide(instruction)]
        last_load = max((i for i in wide if self.path[i].name == "LDG"), default=0)
        last_store = max((i for i in wide if self.path[i].name == "STG"), default=0)
        return sum(instruction.name == "BRA" for instruction in self.path[last_load:last_store])

    def _wide(self, name: str) -> int:
        return sum(is_wide(x) and x.name == name for x in self.path)

    def _per_element(self, count: int) -> float:
        elements = self.stores * VECTOR_BYTES // BYTES[self.case.dtype]
        return count / elements if elements else math.inf


def vector_kernels(kernels: Iterable[Kernel]) -> list[VectorKernel]:
    operators = {"Forward": "forward", "Backward": "backward", "DoubleBackward": "double_backward"}
    found = []
    for kernel in kernels:
        if m := re.match(r"map_rows<(AddBias<)?(\w+)<(\w+), \w+>[ >]*, (\w+),", kernel.name):
            case = Case(operators[m[2]], m[3], m[4], biased=bool(m[1]))
            found.append(VectorKernel(case, kernel, has_loop=False))
        elif m := re.match(r"sum_columns<(\w+), (\w+), Consecutive<", kernel.name):
            case = Case("column_sums", m[1], m[2], biased=True)
            found.append(VectorKernel(case, kernel, has_loop=True))
    return found


def busiest(kernels: Iterable[VectorKernel]) -> dict[Case, VectorKernel]:
    """Of the kernels of a case, the one with the most rows for a thread: that of large tensors."""
    return {x.case: x for x in sorted(kernels, key=lambda x: x.stores)}


def peers(kernels: Iterable[Kernel]) -> dict[Case, VectorKernel]:
    found = {}
    for kernel in kernels:
        op, gate, dtype = re.match(r"(\w+)<(\w+), (\w+)>", kernel.name).groups()
        case = Case(op, gate, dtype, biased=False)
        found[case] = VectorKernel(case, kernel, has_loop=False)
    return found


def compile_all(sources: list[Path], choice: list[str]) -> dict[str, list[Kernel]]:
    """The kernels by architecture."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {
            architecture: [
                pool.submit(compile_kernels, source, architecture, choice) for source in sources
            ]
            for architecture in ARCHITECTURES
        }
    return {name: [x for job in job_list for x in job.result()] for name, job_list in jobs.items()}


def read_budgets() -> dict[tuple[Case, str], float]:
    with BUDGETS.open() as file:
        return {
            (Case(op, gate, dtype, biased == "biased"), architecture): float(slots)
            for op, gate, dtype, biased, *row in list(csv.reader(file))[1:]
            for architecture, slots in zip(ARCHITECTURES, row, strict=True)
        }


def write_budgets(ours: dict[str, dict[Case, VectorKernel]]) -> None:
    """With room for what another version of the compiler may do differently."""
    broken = [x.kernel.name for found in ours.values() for x in found.values() if not x.stores]
    if broken:
        sys.exit(f"no vectors in {', '.join(broken)}")
    with BUDGETS.open("w") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["op", "gate", "dtype", "bias", *ARCHITECTURES])
        for case in CASES:
            slots = [math.ceil(2 * ours[name][case].slots + 0.5) / 2 for name in ARCHITECTURES]
            writer.writerow([*case[:3], "biased" if case.biased else "", *slots])


def print_table(
    ours: dict[str, dict[Case, VectorKernel]], theirs: dict[str, dict[Case, VectorKernel]]
) -> None:
    print("Slots for an element. What follows the slots is for sm_90: those of the peers' formula,")
    print("those that memory leaves time for on an H100, registers, loads that are under way at a")
    print("time, of all loads, and instructions of the special function unit for an element.\n")
    line = "{:<16}{:<13}{:<6}{:<7}" + "{:>8}" * len(ARCHITECTURES) + "{:>7}{:>7}{:>11}{:>7}{:>6}"
    after = ["peers", "limit", "registers", "loads", "mufu"]
    print(line.format("op", "gate", "dtype", "bias", *ARCHITECTURES, *after))
    for case in CASES:
        x, peer = ours["sm_90"][case], theirs["sm_90"].get(case)
        slots = [f"{ours[name][case].slots:.1f}" for name in ARCHITECTURES]
        compared = f"{peer.slots:.1f}" if peer else ""
        limit = "" if case.dtype == "fp64" else f"{case.h100_limit:.0f}"
        loads = f"{x.loads_in_flight}/{x.loads}"
        numbers = [*slots, compared, limit, x.kernel.registers, loads, f"{x.mufu:.1f}"]
        print(line.format(*case[:3], "biased" if case.biased else "", *numbers))


def main() -> None:
    if missing := missing_tools():
        sys.exit(f"needs {', '.join(missing)}")
    compiled = compile_all(SOURCES, options())
    ours = {name: busiest(vector_kernels(kernels)) for name, kernels in compiled.items()}
    # The peers let the compiler fuse what it likes.
    fusing = [option for option in options() if option != "-fmad=false"]
    theirs = {name: peers(kernels) for name, kernels in compile_all([PEERS], fusing).items()}
    print_table(ours, theirs)
    if "--record" in sys.argv:
        write_budgets(ours)


if __name__ == "__main__":
    main()
