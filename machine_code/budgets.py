"""How many instructions each kernel may issue for an element: budgets.csv, with a column for each
dtype and architecture."""

import csv
import math
from itertools import product
from pathlib import Path

from machine_code.cases import ARCHITECTURES, CASES, DTYPES, Case
from machine_code.vector_kernels import VectorKernel

FILE = Path(__file__).parent / "budgets.csv"
SLOTS = list(product(DTYPES, ARCHITECTURES))

Found = dict[str, dict[Case, VectorKernel]]  # by architecture
Budgets = dict[Case, dict[str, float]]  # by architecture


def read() -> Budgets:
    budgets = {}
    with FILE.open() as file:
        for op, gate, biased, backend, *slots in list(csv.reader(file))[1:]:
            for (dtype, architecture), most in zip(SLOTS, slots, strict=True):
                case = Case(op, gate, dtype, bool(biased), backend)
                budgets.setdefault(case, {})[architecture] = float(most)
    return budgets


def record(found: Found) -> None:
    """With room for other versions of the compiler. The budgets of a backend that was not compiled
    stay."""
    budgets = read()
    for case in found["sm_90"]:
        budgets[case] = {
            name: math.ceil(2 * found[name][case].slots + 0.5) / 2 for name in ARCHITECTURES
        }
    write(budgets)


def write(budgets: Budgets) -> None:
    with FILE.open("w") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["op", "gate", "bias", "backend", *map(" ".join, SLOTS)])
        for case in CASES:
            if case.dtype == DTYPES[0]:
                op, gate, _, biased, backend = case.columns
                slots = [budgets[case._replace(dtype=dtype)][name] for dtype, name in SLOTS]
                writer.writerow([op, gate, biased, backend, *slots])
