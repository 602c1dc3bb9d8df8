"""``python -m machine_code``: the instructions that a thread issues for an element, in every CUDA
and Triton kernel and in peers' formulas. The kernels' operands are all rows of 16-byte vectors.

``--record`` also writes them to budgets.csv, as the limits of a test.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from machine_code import budgets, cuda_code
from machine_code.budgets import Found
from machine_code.cases import ARCHITECTURES, BACKENDS, CASES, Case
from machine_code.cuda_code import CLASSES
from machine_code.machines import MACHINES
from machine_code.sass import Kernel
from machine_code.vector_kernels import TYPES, VectorKernel, busiest, vector_kernels

PEERS = Path(__file__).parent / "peers.cu"


def peers(kernels: Iterable[Kernel]) -> dict[Case, VectorKernel]:
    found = {}
    for kernel in kernels:
        op, gate, dtype = re.match(r"(\w+)<(\w+), (\w+)>", kernel.name).groups()
        case = Case(f"gate_{op}", CLASSES[gate], TYPES[dtype], False, "peers")
        found[case] = VectorKernel(case, kernel)
    return found


def print_table(ours: Found, theirs: dict[Case, VectorKernel]) -> None:
    print("Slots for an element. The columns after them are for sm_90: slots of peers' formulas,")
    print("slots that memory leaves time for on an H100, registers, loads under way at a time of")
    print("all loads, and instructions of the special function unit for an element.\n")
    line = (
        "{:<21}{:<14}{:<9}{:<7}{:<8}" + "{:>8}" * len(ARCHITECTURES) + "{:>7}{:>6}{:>10}{:>6}{:>6}"
    )
    after = ["peers", "limit", "registers", "loads", "mufu"]
    print(line.format("op", "gate", "dtype", "bias", "backend", *ARCHITECTURES, *after))
    for case, x in ours["sm_90"].items():
        slots = [f"{ours[name][case].slots:.1f}" for name in ARCHITECTURES]
        peer = theirs.get(case._replace(backend="peers"))
        compared = f"{peer.slots:.1f}" if peer else ""
        limit = "" if case.dtype == "float64" else f"{MACHINES['H100'].limit(case.moved):.0f}"
        loads = f"{x.loads_in_flight}/{x.loads}"
        numbers = [*slots, compared, limit, x.kernel.registers, loads, f"{x.mufu:.1f}"]
        print(line.format(*case.columns, *numbers))


def main() -> None:
    found = {name: {} for name in ARCHITECTURES}
    theirs = {}
    for backend, code in BACKENDS.items():
        if missing := code.missing_tools():
            print(f"without {backend}: needs {', '.join(missing)}", file=sys.stderr)
            continue
        for name in ARCHITECTURES:
            found[name] |= busiest(vector_kernels(code.kernels(name)))
        if backend == "cuda" and not cuda_code.missing_programs("nvcc"):
            theirs = peers(cuda_code.compile_kernels(PEERS, "sm_90", fused=True))
    ours = {name: {case: x[case] for case in CASES if case in x} for name, x in found.items()}
    print_table(ours, theirs)
    if "--record" in sys.argv:
        if broken := [x.kernel.name for x in ours["sm_90"].values() if not x.stores]:
            sys.exit(f"no vectors in {', '.join(broken)}")
        budgets.record(ours)


if __name__ == "__main__":
    main()
