"""How many instructions each kernel may issue for an element: budgets.csv."""

import csv
import math
from pathlib import Path

from machine_code.backends import ARCHITECTURES
from machine_code.cases import CASES, Case
from machine_code.vector_kernels import VectorKernel

FILE = Path(__file__).parent / "budgets.csv"

Found = dict[str, dict[Case, VectorKernel]]  # by architecture


def read() -> dict[Case, dict[str, float]]:
    """By architecture."""
    with FILE.open() as file:
        return {
            Case(op, gate, dtype, bool(biased), backend): dict(
                zip(ARCHITECTURES, map(float, slots), strict=True)
            )
            for op, gate, dtype, biased, backend, *slots in list(csv.reader(file))[1:]
        }


def record(found: Found) -> None:
    """With room for what another version of the compiler may do differently. The budgets of a
    backend that was not compiled stay."""
    budgets = read()
    for case in found["sm_90"]:
        budgets[case] = {
            name: math.ceil(2 * found[name][case].slots + 0.5) / 2 for name in ARCHITECTURES
        }
    with FILE.open("w") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["op", "gate", "dtype", "bias", "backend", *ARCHITECTURES])
        for case in CASES:
            writer.writerow([*case.columns, *budgets[case].values()])
